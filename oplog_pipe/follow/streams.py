"""The streams a source follows: addresses, and changes read from their blocks. No I/O."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from oplog_pipe.model.record import RecordOp
from oplog_pipe.model.settings import OPLOG
from oplogc.follow.format import StreamFormat
from oplogc.http.address import Endpoint, base_endpoint, below, stream_endpoint, stream_query
from oplogc.topics.calls.topics import Isolation
from oplogc.topics.consumer import MAX_BLOCK_BYTES as MAX_TOPIC_BLOCK_BYTES
from oplogc.topics.messages.message import published_ms
from oplogc.topics.messages.names import topic_name
from oplogc.wire.errors import ProtocolError, RefusedError
from oplogc.wire.events import POSITION, Checkpoint, is_known
from oplogc.wire.sse import MAX_BLOCK_BYTES, Block

START = "0"
"""The position before everything: all objects of the oplog, all messages of a topic."""

_TOPIC_POSITION = re.compile(r"[0-9]{1,13}|[0-9a-f]{40}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Change(msgspec.Struct, frozen=True, gc=False):
    """An operation, a message, ``reset`` or ``live``, as a stream brought it.

    ``event_id``: the position behind it. ``timestamp``: ms since 1970, or 0. ``data``: JSON of the
    operation as streamed, or of the message as a poll shows it.
    """

    event_id: str
    sequence: int
    op: RecordOp
    namespace: str = ""
    id: str = ""
    timestamp: int = 0
    data: bytes = b""

    @property
    def size(self) -> int:
        """Bytes it takes in memory, about."""
        return 400 + len(self.data) + len(self.namespace) + len(self.id)


Item = Change | Checkpoint


class _Operation(msgspec.Struct):
    timestamp: datetime
    type: str
    id: str


class _Message(msgspec.Struct):
    payload: msgspec.Raw
    key: str | None = None


_read_operation = msgspec.json.Decoder(_Operation).decode
_read_message = msgspec.json.Decoder(_Message).decode


def is_oplog(log: str) -> bool:
    return log == OPLOG


def is_replicated(position: str) -> bool:
    """Return whether a position of the oplog is the time of a state: states come behind it."""
    return len(position) <= 13


def has_states(position: str) -> bool:
    """Return whether a source at a position of the oplog is receiving states."""
    return position != START and is_replicated(position)


def is_reset(item: Item) -> bool:
    return type(item) is Change and item.op == "reset"


def consumer_name(source: str) -> str:
    """Return the name under which a source shows in the agent's status: at most 100 characters."""
    return f"oplog-pipe.{source.replace('/', '.')}"[:100]


def oplog_endpoints(
    urls: Sequence[str], password: str | None, name: str | None = None
) -> list[Endpoint]:
    """Return the native stream of each agent. ``name``: of the consumer. Raises ValueError."""
    return [stream_endpoint(url, password, (), (), name) for url in urls]


def topic_endpoints(
    urls: Sequence[str],
    password: str | None,
    log: str,
    isolation: Isolation,
    name: str | None = None,
) -> list[Endpoint]:
    """Return the topic's stream of each agent. ``name``: of the consumer. Raises ValueError."""
    path = f"{topic_name(log).path}/stream"
    query = {**stream_query(name), "isolation": isolation}
    endpoints = [below(base_endpoint(url, password), path) for url in urls]
    return [each._replace(url=each.url.copy_merge_params(query)) for each in endpoints]


def oplog_format() -> StreamFormat[Change]:
    """Return the format of ``/ops``."""
    return StreamFormat(_oplog_item, is_known, RefusedError, POSITION, MAX_BLOCK_BYTES)


def topic_format(log: str) -> StreamFormat[Change]:
    """Return the format of the stream of a topic. Raise ValueError for a bad name."""
    namespace = str(topic_name(log))

    def read(block: Block, sequence: int) -> Item | None:
        return _topic_item(block, sequence, namespace)

    return StreamFormat(read, _is_of_topic, RefusedError, _TOPIC_POSITION, MAX_TOPIC_BLOCK_BYTES)


def _oplog_item(block: Block, sequence: int) -> Item | None:
    event_id, event, data, has_id = block
    if has_id and not POSITION.fullmatch(event_id):
        raise _no_position(event_id)
    if event in ("insert", "update", "delete"):
        try:
            operation = _read_operation(data)
            return Change(
                event_id,
                sequence,
                event,  # type: ignore[arg-type]  # one of three, as just checked
                operation.type,
                operation.id,
                (operation.timestamp - _EPOCH) // _MS,
                data.encode(),
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise _unreadable("operation", event_id, error) from None
    if event in ("reset", "live"):
        return Change(event_id, sequence, event)  # type: ignore[arg-type]  # one of these two
    return Checkpoint(event_id, sequence) if has_id else None


def _topic_item(block: Block, sequence: int, namespace: str) -> Item | None:
    event_id, event, data, has_id = block
    if has_id and not _TOPIC_POSITION.fullmatch(event_id):
        raise _no_position(event_id)
    if event == "message" and data:
        try:
            message = _read_message(data)
            is_null = bytes(message.payload) == b"null"
            key = message.key
            return Change(
                event_id,
                sequence,
                "delete" if is_null and key is not None else "insert",
                namespace,
                event_id if key is None else key,
                published_ms(event_id),
                # A poll shows the id first. The payload is required, so the object is not empty.
                f'{{"id":"{event_id}",{data[data.index("{") + 1 :]}'.encode(),
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise _unreadable("message", event_id, error) from None
    if event == "reset":
        return Change(event_id, sequence, "reset")
    return Checkpoint(event_id, sequence) if has_id else None


def _is_of_topic(block: Block) -> bool:
    return block.event in ("message", "reset", "live") or not (block.event or block.data)


def _no_position(event_id: str) -> ProtocolError:
    return ProtocolError(f"the stream has the id {event_id[:50]!r}, which is no position")


def _unreadable(kind: str, event_id: str, error: Exception) -> ProtocolError:
    reason = f"{type(error).__name__}: {error}"[:200]
    return ProtocolError(f"the {kind} {event_id} cannot be read ({reason}): is it an agent?")
