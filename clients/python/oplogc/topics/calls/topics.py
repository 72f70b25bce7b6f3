"""Requests about topics, and the meaning of their answers. No I/O."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, cast, get_args

from oplogc.http.answers import Answer, password_problem
from oplogc.topics.messages.message import ReceivedMessage, check_max_bytes, check_ttl, decode
from oplogc.topics.messages.names import Topic, TopicName, namespace_name, topics_path
from oplogc.topics.messages.snapshot import ForeignTransaction
from oplogc.wire.errors import (
    BadRequestError,
    NotAllowed,
    OplogError,
    ProtocolError,
    RefusedError,
    TopicAlreadyExists,
    TopicNotFound,
)
from oplogc.wire.events import position_of

GAP = "oplog-gap"
HELD_BY = "oplog-held-by"
# Seconds: 30 days.
MAX_POINTER_TIMEOUT = 30 * 86_400

Isolation = Literal["read_uncommitted", "read_committed"]
"""The records that a reader of a topic sees: all, or those of a transaction at its commit."""
READ_UNCOMMITTED: Isolation = "read_uncommitted"


class Call(NamedTuple):
    """A request. ``writes``: whether it needs the right to write. ``done``: status of success.

    ``query``: parameters of the address. ``headers``: besides those of every request.
    """

    method: str
    path: str
    body: bytes | None = None
    writes: bool = False
    done: int = 200
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


class _Polled(NamedTuple):
    messages: tuple[ReceivedMessage, ...]
    gap: bool


class Polled(_Polled):
    """The answer to a poll. ``gap``: messages that followed the position are gone.

    ``held_by``: the pointer for whose foreign transaction the reader must wait before it gets the
    following messages; None: none holds it. It is no item of the tuple.
    """

    held_by: int | None

    def __new__(
        cls, messages: tuple[ReceivedMessage, ...], gap: bool, held_by: int | None = None
    ) -> Self:
        polled = super().__new__(cls, messages, gap)
        polled.held_by = held_by
        return polled


def create(
    name: TopicName,
    ttl: int | None,
    pointers: bool = True,
    pointer_timeout: int | None = None,
    max_bytes: int | None = None,
) -> Call:
    """Raises MessageError for a bad property, and ValueError for a bad ``pointer_timeout``."""
    body = _properties(ttl, pointers, pointer_timeout, max_bytes)
    return Call("PUT", name.path, body, True)


def update(
    name: TopicName,
    ttl: int | None,
    pointers: bool = True,
    pointer_timeout: int | None = None,
    max_bytes: int | None = None,
) -> Call:
    """Raises as ``create`` does."""
    body = _properties(ttl, pointers, pointer_timeout, max_bytes)
    return Call("PUT", f"{name.path}/properties", body, True)


def get(name: TopicName) -> Call:
    return Call("GET", name.path)


def list_topics(namespace: str) -> Call:
    """Raises ValueError."""
    return Call("GET", topics_path(namespace_name(namespace)))


def delete(name: TopicName) -> Call:
    return Call("DELETE", name.path, None, True)


def publish(name: TopicName, messages: list[bytes]) -> Call:
    """``messages`` are encoded."""
    body = b'{"messages":[' + b",".join(messages) + b"]}"
    return Call("POST", f"{name.path}/publish", body, True)


def poll(
    name: TopicName,
    start_from: str | int | datetime | None,
    inclusive: bool,
    limit: int | None,
    isolation: Isolation,
    transaction: ForeignTransaction | None = None,
) -> Call:
    """Raises ValueError."""
    if isinstance(start_from, datetime):
        start_from = int(position_of(start_from))
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError("limit: give a whole number of at least 1")
    asked: dict[str, object] = {
        "startFrom": start_from,
        "inclusive": inclusive,
        "limit": limit,
    }
    if check_isolation(isolation) != READ_UNCOMMITTED:
        asked["isolation"] = isolation
    if transaction is not None:
        asked["transaction"] = transaction.as_json()
    return Call("POST", f"{name.path}/poll", json.dumps(asked).encode())


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


def refusal(call: Call, answer: Answer) -> OplogError | None:
    """Return the error for an answer that no later attempt would change; None for success."""
    status = answer.status
    if status == call.done:
        return None
    if status < 300:
        return _no_agent(answer, f"HTTP {status}")
    if status < 400:
        hint = f" to {answer.location}: give that address instead" if answer.location else ""
        return RefusedError(status, f"{answer.url} redirects{hint}")
    if status == 409 and call.method == "PUT" and not call.path.startswith(topics_path("system")):
        return TopicAlreadyExists(status, answer.detail())
    if status == 401:
        option = "ingest_password" if call.writes else "password"
        return refused(status, password_problem(answer.detail(), answer.authorized, option))
    return refused(status, answer.detail())


def confirmation(answer: Answer) -> OplogError | None:
    """Return the error for a 200 that confirms nothing: a publish is answered without a body."""
    return None if answer.body == b"" else _no_agent(answer, "its answer confirms nothing")


def topic(name: TopicName, answer: Answer) -> Topic:
    """Raises ProtocolError."""
    return _topic(name.namespace, _json(answer), answer)


def topics(namespace: str, answer: Answer) -> tuple[Topic, ...]:
    """Raises ProtocolError."""
    listed = _json(answer)
    if not isinstance(listed, list):
        raise _no_agent(answer, "it does not list topics")
    return tuple(_topic(namespace, each, answer) for each in listed)


def polled(answer: Answer) -> Polled:
    """Raises ProtocolError."""
    listed = _json(answer)
    if not isinstance(listed, list):
        raise _no_agent(answer, "it does not list messages")
    try:
        messages = tuple(decode(_id(each), each) for each in listed)
    except (ValueError, TypeError, KeyError) as error:
        raise _no_agent(answer, f"its messages cannot be read: {error!r}"[:300]) from None
    held_by = answer.headers.get(HELD_BY, "")
    return Polled(
        messages,
        answer.headers.get(GAP) == "1",
        int(held_by) if re.fullmatch("[0-9]{1,19}", held_by) else None,
    )


def _properties(
    ttl: int | None, pointers: bool, pointer_timeout: int | None, max_bytes: int | None
) -> bytes:
    """Return the body that sets the properties of a topic. Those of the default are left out."""
    given: dict[str, object] = {} if ttl is None else {"ttl": check_ttl(ttl)}
    if not pointers:
        given["pointers"] = "off"
    if pointer_timeout is not None:
        if type(pointer_timeout) is not int or not 1 <= pointer_timeout <= MAX_POINTER_TIMEOUT:
            raise ValueError(
                f"pointer_timeout: give whole seconds, 1 to {MAX_POINTER_TIMEOUT:,} (30 days)"
            )
        given["pointer_timeout"] = pointer_timeout
    if max_bytes is not None:
        given["max_bytes"] = check_max_bytes(max_bytes)
    return json.dumps(given).encode()


def _topic(namespace: str, described: object, answer: Answer) -> Topic:
    name = described.get("name") if isinstance(described, dict) else None
    properties = described.get("properties") if isinstance(described, dict) else None
    if not isinstance(name, str) or not isinstance(properties, dict):
        raise _no_agent(answer, "it does not describe a topic")
    texts = {str(key): str(value) for key, value in properties.items()}
    return Topic(TopicName(namespace, name), texts)


def _id(given: Any) -> str:
    id_ = given["id"]
    if not isinstance(id_, str):
        raise TypeError("an id must be text")
    return id_


def _json(answer: Answer) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise _no_agent(answer, "its answer is no JSON, or too long") from None


def _no_agent(answer: Answer, reason: str) -> ProtocolError:
    return ProtocolError(f"{answer.url} is no agent with topics: {reason}")
