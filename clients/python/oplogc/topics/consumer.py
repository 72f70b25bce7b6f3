"""The consumer of a topic."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from oplogc.follow.following import Following, FollowOptions
from oplogc.follow.format import StreamFormat
from oplogc.http.address import Endpoint, agent_urls, base_endpoint, below, stream_query
from oplogc.http.backoff import BACKOFF
from oplogc.http.token import Token, TokenSource, token_source
from oplogc.topics.calls.topics import READ_COMMITTED, Isolation, check_isolation, refused
from oplogc.topics.messages.message import ID, ReceivedMessage, decode
from oplogc.topics.messages.names import OPLOG, TopicName, topic_name
from oplogc.wire.errors import ProtocolError
from oplogc.wire.events import Checkpoint, Reset, checked_text, position_of
from oplogc.wire.operation import EVENTS
from oplogc.wire.sse import Block

MAX_BLOCK_BYTES = 8 * 1024 * 1024
"""A message has at most 1 MiB, and JSON may take six bytes for each of them."""

TopicEvent = ReceivedMessage | Reset
_POSITION = re.compile(r"[0-9a-f]{40}|[0-9]{1,13}", re.ASCII)
_OPLOG_POSITION = re.compile(r"[0-9a-f]{24}|[0-9]{1,13}", re.ASCII)


class TopicConsumer(Following[TopicEvent]):
    """Follow a topic with ``async for`` or with ``for``: messages, and ``Reset``.

    ``Reset``: messages after the position are gone, or the topic was created again. The oldest
    remaining message follows. A consumer reconnects by itself and resumes where it was, so
    each message comes once, or a ``Reset`` announces the loss. Messages may come again after a
    crash. Iterate in one way and from one thread. Any thread may call ``ack`` and ``stop``.

    - ``url``: an agent, or a list of agents on the same store, to be asked in turn.
    - ``topic``: ``namespace/topic``, or ``topic`` in the namespace ``default``. Messages of
      ``system/oplog`` are operations in JSON.
    - ``start``: ``"0"`` for the oldest message, an id to begin after, or a time with a zone to
      begin at. None: begin with the next message.
    - ``isolation``: ``read_committed`` brings the records of a transaction together, at its commit.
      ``read_uncommitted`` brings them when they are written.
    - ``shard``: ``"3/8"`` for shard 3 of 8, from 0 to 7. All messages of a key are in the same
      shard. None: receive all.
    - The other arguments are those of ``oplogc.Consumer``. With a ``state_file``, acknowledge every
      event, ``Reset`` too.

    Raises ValueError for a bad argument and StateFileError for an unusable state file.
    Iterating raises TopicNotFound, also when the topic is deleted, NotAllowed, other RefusedError,
    ProtocolError, and StateFileError at the end if the position could not be saved.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        topic: str,
        *,
        start: str | datetime | None = None,
        isolation: Isolation = READ_COMMITTED,
        shard: str | None = None,
        name: str | None = None,
        state_file: str | Path | None = None,
        password: str | None = None,
        token: Token | None = None,
        proxy: str | None = None,
        timeout: float = 10.0,
        heartbeat_timeout: float = 40.0,
        backoff: tuple[float, float] = BACKOFF,
        save_interval: float = 1.0,
        max_unacked: int = 10_000,
    ) -> None:
        followed = topic_name(topic)
        # Older agents read uncommitted by default.
        query = stream_query(name, shard) | {"isolation": check_isolation(isolation)}
        source = token_source(token, password=password)
        endpoints = [_stream(each, followed, password, source, query) for each in agent_urls(url)]
        positions = _OPLOG_POSITION if followed == OPLOG else _POSITION
        stored = isolation if followed != OPLOG and isolation == READ_COMMITTED else ""
        options = FollowOptions(
            state_file, proxy, timeout, heartbeat_timeout, backoff, save_interval, max_unacked
        )
        super().__init__(
            endpoints,
            StreamFormat(read, is_known, refused, positions, MAX_BLOCK_BYTES, stored),
            _start(start, positions),
            options,
        )


def read(block: Block, sequence: int) -> TopicEvent | Checkpoint | None:
    """Return the event of a block, or its position if it has no event. None if it has neither.

    Raises ProtocolError. Events of other names only move the position.
    """
    id_, event, data, has_id = block
    if has_id and not ID.fullmatch(id_):
        raise ProtocolError(f"the stream has the id {id_[:50]!r}, which is none of a message")
    if event == "reset":
        return Reset(id_, sequence=sequence)
    try:
        if event == "message" and data:
            return decode(id_, json.loads(data), sequence)
        if event in EVENTS:  # as a poll of system/oplog shows it
            payload = json.dumps(
                {"event": event, **json.loads(data)}, ensure_ascii=False, separators=(",", ":")
            )
            return ReceivedMessage(id_, payload, sequence=sequence)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise ProtocolError(
            f"the message {id_} cannot be read ({reason}): is it an agent?"
        ) from None
    return Checkpoint(id_, sequence) if has_id else None


def is_known(block: Block) -> bool:
    """Return whether this client knows the block's event. A block with only an id is known."""
    return block.event in ("message", "reset", "live", *EVENTS) or not (block.event or block.data)


def _stream(
    url: str,
    topic: TopicName,
    password: str | None,
    token: TokenSource | None,
    query: dict[str, str],
) -> Endpoint:
    endpoint = below(base_endpoint(url, password, token), f"{topic.path}/stream")
    return endpoint._replace(url=endpoint.url.copy_merge_params(query))


def _start(start: str | datetime | None, positions: re.Pattern[str]) -> str:
    if start is None or isinstance(start, datetime):
        return position_of(start) if start else ""
    if not positions.fullmatch(checked_text(start)):
        raise ValueError(f"{start!r} is neither a message's id nor milliseconds since 1970")
    return start
