"""Requests about topics, and the meaning of their answers. No I/O."""

import json
import re
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple, Self, cast, get_args

from oplogc.http.answers import Answer, password_problem
from oplogc.topics.calls.call import Call, no_agent, nothing, text
from oplogc.topics.messages.message import ReceivedMessage, check_max_bytes, check_ttl, decode
from oplogc.topics.messages.names import Topic, TopicName, namespace_name, topics_path
from oplogc.topics.messages.snapshot import ForeignTransaction
from oplogc.wire.errors import (
    BadRequestError,
    NotAllowed,
    OplogError,
    RefusedError,
    TopicAlreadyExists,
    TopicNotFound,
)
from oplogc.wire.events import position_of
from oplogc.wire.shard import check_echo, shard_query

GAP = "oplog-gap"
HELD_BY = "oplog-held-by"
POSITION = "oplog-position"
# Seconds: 30 days.
MAX_POINTER_TIMEOUT = 30 * 86_400
_KIND = "topics"

Isolation = Literal["read_uncommitted", "read_committed"]
"""The records for a reader of a topic: all, or those of a transaction at its commit."""
READ_COMMITTED: Isolation = "read_committed"


class _Polled(NamedTuple):
    messages: tuple[ReceivedMessage, ...]
    gap: bool


class Polled(_Polled):
    """The answer to a poll. ``gap``: messages behind the position are gone.

    ``held_by``: the pointer for whose foreign transaction the reader must wait before it gets the
    following messages. None: none holds the reader. ``position``: the id up to which the messages
    of the shard are complete. The next poll begins after it. None: after the last message. Both are
    no items of the tuple.
    """

    held_by: int | None
    position: str | None

    def __new__(
        cls,
        messages: tuple[ReceivedMessage, ...],
        gap: bool,
        held_by: int | None = None,
        position: str | None = None,
    ) -> Self:
        polled = super().__new__(cls, messages, gap)
        polled.held_by = held_by
        polled.position = position
        return polled


class Properties(NamedTuple):
    """The properties of a topic to be created or changed. None: the agent's default."""

    ttl: int | None = None
    pointers: bool = True
    pointer_timeout: int | None = None
    max_bytes: int | None = None

    def are_of(self, topic: Topic) -> bool:
        """Return whether a topic has these properties."""
        found = (topic.pointers, topic.pointer_timeout, topic.max_bytes)
        return found == self[1:] and self.ttl in (None, topic.ttl)

    def body(self) -> bytes:
        """Return the body of a request, without defaults. Raises MessageError and ValueError."""
        given: dict[str, object] = {} if self.ttl is None else {"ttl": check_ttl(self.ttl)}
        if not self.pointers:
            given["pointers"] = "off"
        if (seconds := self.pointer_timeout) is not None:
            if type(seconds) is not int or not 1 <= seconds <= MAX_POINTER_TIMEOUT:
                raise ValueError(
                    f"pointer_timeout: give whole seconds, 1 to {MAX_POINTER_TIMEOUT:,} (30 days)"
                )
            given["pointer_timeout"] = seconds
        if self.max_bytes is not None:
            given["max_bytes"] = check_max_bytes(self.max_bytes)
        return json.dumps(given).encode()


def create(name: TopicName, properties: Properties) -> Call[Topic]:
    """Raises MessageError and ValueError."""
    return Call("PUT", name.path, partial(_topic, name), properties.body(), True)


def update(name: TopicName, properties: Properties) -> Call[Topic]:
    """Raises MessageError and ValueError."""
    return create(name, properties)._replace(path=f"{name.path}/properties")


def get(name: TopicName) -> Call[Topic]:
    return Call("GET", name.path, partial(_topic, name))


def list_topics(namespace: str) -> Call[tuple[Topic, ...]]:
    """Raises ValueError."""

    def read(answer: Answer) -> tuple[Topic, ...]:
        listed = _json(answer)
        if not isinstance(listed, list):
            raise no_agent(answer, _KIND, "it does not list topics")
        return tuple(_described(namespace, each, answer) for each in listed)

    return Call("GET", topics_path(namespace_name(namespace)), read)


def delete(name: TopicName) -> Call[None]:
    return Call("DELETE", name.path, nothing, None, True)


def publish(name: TopicName, messages: list[bytes]) -> Call[None]:
    """``messages`` are encoded."""
    body = b'{"messages":[' + b",".join(messages) + b"]}"
    return Call("POST", f"{name.path}/publish", nothing, body, True)


def poll(
    name: TopicName,
    start_from: str | int | datetime | None,
    inclusive: bool,
    limit: int | None,
    isolation: Isolation,
    transaction: ForeignTransaction | None = None,
    shard: str | None = None,
) -> Call[Polled]:
    """Raises ValueError."""
    if isinstance(start_from, datetime):
        start_from = int(position_of(start_from))
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError("limit: give a whole number of at least 1")
    asked: dict[str, object] = {"startFrom": start_from, "inclusive": inclusive, "limit": limit}
    check_isolation(isolation)
    # A snapshot is always read committed. Otherwise older agents read uncommitted by default.
    if transaction is None:
        asked["isolation"] = isolation
    else:
        asked["transaction"] = transaction.as_json()
    body = json.dumps(asked).encode()
    read = partial(polled, shard=shard)
    return Call("POST", f"{name.path}/poll", read, body, query=shard_query(shard))


def check_isolation(text: str) -> Isolation:
    """Return an isolation. Raise ValueError."""
    if text not in get_args(Isolation):
        raise ValueError(f"{text!r} is not an isolation: give {' or '.join(get_args(Isolation))}")
    return cast(Isolation, text)


def refused(status: int, detail: str) -> RefusedError:
    """Return the error for an agent's refusal to read."""
    kinds = {401: NotAllowed, 403: NotAllowed, 404: TopicNotFound}
    kinds |= dict.fromkeys((400, 413, 415), BadRequestError)
    return kinds.get(status, RefusedError)(status, detail)


def refusal(call: Call[Any], answer: Answer) -> OplogError | None:
    """Return the error for a final refusal. None for success."""
    status = answer.status
    if status == call.done:
        return None
    if status < 300:
        return no_agent(answer, _KIND, f"HTTP {status}")
    if status < 400:
        hint = f" to {answer.location}: give that address instead" if answer.location else ""
        return RefusedError(status, f"{answer.url} redirects{hint}")
    if status == 409 and call.method == "PUT" and not call.path.startswith(topics_path("system")):
        return TopicAlreadyExists(status, answer.detail())
    if status == 401:
        option = "ingest_password" if call.writes else "password"
        problem = password_problem(answer.detail(), answer.authorized, option, answer.had_token)
        return refused(status, problem)
    return refused(status, answer.detail())


def confirmation(answer: Answer) -> OplogError | None:
    """Return the error for a 200 with a body: a publish is confirmed without one."""
    return None if answer.body == b"" else no_agent(answer, _KIND, "its answer confirms nothing")


def polled(answer: Answer, shard: str | None = None) -> Polled:
    """Raises ProtocolError."""
    check_echo(shard, answer.headers, answer.url)
    listed = _json(answer)
    if not isinstance(listed, list):
        raise no_agent(answer, _KIND, "it does not list messages")
    try:
        messages = tuple(decode(text(each["id"]), each) for each in listed)
    except (ValueError, TypeError, KeyError) as error:
        raise no_agent(answer, _KIND, f"its messages cannot be read: {error!r}"[:300]) from None
    held_by = answer.headers.get(HELD_BY, "")
    position = answer.headers.get(POSITION, "")
    return Polled(
        messages,
        answer.headers.get(GAP) == "1",
        int(held_by) if re.fullmatch("[0-9]{1,19}", held_by) else None,
        position if re.fullmatch("[0-9a-f]{24}|[0-9a-f]{40}", position) else None,
    )


def _topic(name: TopicName, answer: Answer) -> Topic:
    return _described(name.namespace, _json(answer), answer)


def _described(namespace: str, described: object, answer: Answer) -> Topic:
    name = described.get("name") if isinstance(described, dict) else None
    properties = described.get("properties") if isinstance(described, dict) else None
    if not isinstance(name, str) or not isinstance(properties, dict):
        raise no_agent(answer, _KIND, "it does not describe a topic")
    shown = {str(key): str(value) for key, value in properties.items()}
    return Topic(TopicName(namespace, name), shown)


def _json(answer: Answer) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise no_agent(answer, _KIND, "its answer is no JSON, or too long") from None
