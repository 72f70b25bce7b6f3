"""Requests about pointers, and the meaning of their answers. No I/O."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from oplogc.http.answers import Answer
from oplogc.topics.calls.call import (
    Call,
    limit,
    list_reader,
    members_of,
    no_agent,
    nothing,
    query,
    reader,
)
from oplogc.topics.messages.names import TopicName, topic_name

MAX_TOPICS = 1000
MAX_KEYS = 100_000
# Offsets of entries end here.
MAX_OFFSET = (1 << 40) - 1
_KEY = re.compile(r"[0-9a-f]{20}", re.ASCII)
_KIND = "pointers"


class Place(NamedTuple):
    """The place of an entry: time in milliseconds since 1970, and the sequence in it."""

    publish_timestamp: int
    sequence_id: int

    @property
    def key(self) -> str:
        """The place as a rollback takes it: 20 hexadecimal digits."""
        return f"{self.publish_timestamp:016x}{self.sequence_id:04x}"


class Published(NamedTuple):
    """The answer to a publish under a pointer. Give it to ``rollback``.

    ``places``: one of each message, or the one at which all stored messages are published. Empty
    if no message was given and none was stored.
    """

    topic: str
    pointer: int
    places: tuple[Place, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The places as a rollback takes them: 20 hexadecimal digits each."""
        return tuple(place.key for place in self.places)

    def as_json(self) -> dict[str, object]:
        """Return the agent's answer."""
        places = [
            {"publishTimestamp": place.publish_timestamp, "sequenceId": place.sequence_id}
            for place in self.places
        ]
        return {"transactionWritePointer": self.pointer, "messages": places}


class OpenPointer(NamedTuple):
    """A pointer without a decision in a topic.

    ``published``: whether it holds readers. Otherwise its messages are only stored.
    ``expires_at``: time after which the pointer counts as aborted.
    """

    pointer: int
    begun_at: datetime
    expires_at: datetime
    published: bool


class Entry(NamedTuple):
    """An entry of a topic, without its message.

    ``pointer``: of a foreign transaction. ``txn``: id of a transaction. ``state`` of the pointer:
    open, committed, aborted or timed out. ``records``: number of messages or records read here.
    ``voided``: number of entries voided by a rollback. ``bytes``: size of its data.
    """

    offset: int
    id: str
    time: datetime
    kind: str
    bytes: int
    pointer: int | None = None
    txn: str | None = None
    state: str | None = None
    records: int | None = None
    voided: int | None = None


def publish(name: TopicName, pointer: int, messages: Sequence[bytes]) -> Call[Published]:
    """``messages`` are encoded. An empty list publishes the stored ones."""

    def read(answer: Answer) -> Published:
        given = reader(_KIND, lambda document: published_of(str(name), document))(answer)
        if given.pointer != pointer or (messages and not given.places):
            raise no_agent(answer, _KIND, "it does not confirm messages under this pointer")
        return given

    return Call("POST", f"{name.path}/publish", read, _body(pointer, messages), True)


def store(name: TopicName, pointer: int, messages: Sequence[bytes]) -> Call[None]:
    """``messages`` are encoded."""
    return Call("POST", f"{name.path}/store", nothing, _body(pointer, messages), True)


def rollback(name: TopicName, pointer: int, keys: Sequence[str], force: bool = False) -> Call[None]:
    """``keys``: none: everything under the pointer in this topic."""
    asked: dict[str, object] = {"transactionWritePointer": pointer}
    if keys:
        asked["rollbackKeys"] = list(keys)
    body = json.dumps(asked).encode()
    parameters = query(force="true" if force else None)
    return Call("POST", f"{name.path}/rollback", nothing, body, True, query=parameters)


def report(pointer: int, decision: str, names: Sequence[TopicName]) -> Call[None]:
    """``decision``: commit or abort."""
    body = json.dumps({"topics": [str(name) for name in names]}).encode()
    return Call("POST", f"/v1/pointers/{pointer}/{decision}", nothing, body, True)


def list_pointers(name: TopicName, most: int | None) -> Call[tuple[OpenPointer, ...]]:
    """Raises ValueError."""
    read = list_reader(_KIND, members_of(OpenPointer))
    return Call("GET", f"{name.path}/pointers", read, query=query(limit=limit(most)))


def list_entries(name: TopicName, after: int | None, most: int | None) -> Call[tuple[Entry, ...]]:
    """Raises ValueError."""
    if after is not None and (type(after) is not int or not 0 <= after <= MAX_OFFSET):
        raise ValueError(f"after: give an offset, a whole number from 0 to {MAX_OFFSET}")
    asked = query(after=after, limit=limit(most))
    return Call("GET", f"{name.path}/entries", list_reader(_KIND, members_of(Entry)), query=asked)


def published_of(topic: str, given: Any) -> Published:
    """Read an answer to a publish. Raise ValueError, TypeError, KeyError."""
    places = tuple(
        Place(_number(each["publishTimestamp"], 64), _number(each["sequenceId"], 16))
        for each in given["messages"]
    )
    return Published(topic, _number(given["transactionWritePointer"], 62), places)


def topic_names(topics: Sequence[str]) -> list[TopicName]:
    """Return the topics of a report. Raise ValueError."""
    if isinstance(topics, str) or not 1 <= len(topics) <= MAX_TOPICS:
        raise ValueError(f"topics: give a list of 1 to {MAX_TOPICS:,} topics")
    return list(dict.fromkeys(map(topic_name, topics)))


def rollback_key(text: str) -> str:
    """Check the key of an entry. Raise ValueError."""
    if not isinstance(text, str) or not _KEY.fullmatch(text):
        raise ValueError(f"{text!r} is not a key: give 20 lower-case hexadecimal digits")
    return text


def _body(pointer: int, messages: Sequence[bytes]) -> bytes:
    listed = b",".join(messages)
    return b'{"transactionWritePointer":%d,"messages":[%s]}' % (pointer, listed)


def _number(given: Any, bits: int) -> int:
    if type(given) is not int or given < 0 or given >> bits:
        raise ValueError(f"a number of {bits} bits was expected")
    return given
