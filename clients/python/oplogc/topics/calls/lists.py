"""Lists of everything at an agent, in pages, and the meaning of their answers. No I/O."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from oplogc.http.answers import Answer
from oplogc.topics.calls.topics import Call
from oplogc.topics.messages.names import TopicName
from oplogc.wire.errors import ProtocolError

NEXT = "oplog-next"
MAX_PAGE = 1000
_T = TypeVar("_T")


class Namespace(NamedTuple):
    """A namespace that has topics. ``topics``: their number."""

    name: str
    topics: int


class Lease(NamedTuple):
    """A lease that was ever held.

    ``holder``: the last one; None after a release. ``expires_in_ms``: 0 if anyone may acquire it.
    ``note``: text that the holder has left.
    """

    name: str
    holder: str | None
    term: int
    expires_in_ms: int
    note: str


class ListedPointer(NamedTuple):
    """A pointer in one topic.

    ``state``: open. Later agents may tell others. ``holds``: whether committed readers of the topic
    wait for it. ``published``: whether messages were published under it; otherwise they are only
    stored. ``expires_at``: time after which it counts as aborted; None if it has no such time.
    """

    topic: TopicName
    pointer: int
    state: str
    holds: bool
    begun_at: datetime
    expires_at: datetime | None
    published: bool


def list_namespaces() -> Call:
    return _list("/v1/namespaces")


def list_leases() -> Call:
    return _list("/v1/leases")


def list_pointers() -> Call:
    return _list("/v1/pointers")


def namespaces(answer: Answer) -> list[Namespace]:
    """Raises ProtocolError."""
    return _read(answer, lambda each: Namespace(_text(each["name"]), int(each["topics"])))


def leases(answer: Answer) -> list[Lease]:
    """Raises ProtocolError."""
    return _read(answer, _lease)


def pointers(answer: Answer) -> list[ListedPointer]:
    """Raises ProtocolError."""
    return _read(answer, _pointer)


async def all_pages(
    call: Call,
    ask: Callable[[Call], Awaitable[Answer]],
    read: Callable[[Answer], list[_T]],
) -> tuple[_T, ...]:
    """Return the items of all pages. Raises ProtocolError, and the errors of ``ask``."""
    found: list[_T] = []
    after = ""
    while True:
        answer = await ask(call)
        found += read(answer)
        following = answer.headers.get(NEXT, "")
        if not following:
            return tuple(found)
        if following == after:
            raise _no_agent(answer, "its pages do not end")
        after = following
        call = call._replace(query={**call.query, "after": after})


def _list(path: str) -> Call:
    return Call("GET", path, query={"limit": str(MAX_PAGE)})


def _lease(given: Any) -> Lease:
    holder = given["holder"]
    return Lease(
        _text(given["name"]),
        None if holder is None else _text(holder),
        int(given["term"]),
        int(given["expires_in_ms"]),
        _text(given["note"]),
    )


def _pointer(given: Any) -> ListedPointer:
    expires = given.get("expires_at")
    return ListedPointer(
        TopicName(_text(given["namespace"]), _text(given["topic"])),
        int(given["pointer"]),
        _text(given["state"]),
        bool(given["holds"]),
        datetime.fromisoformat(given["begun_at"]),
        None if expires is None else datetime.fromisoformat(expires),
        bool(given["published"]),
    )


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError("text was expected")
    return given


def _read(answer: Answer, read: Callable[[Any], _T]) -> list[_T]:
    try:
        given: Any = answer.json()
        if not isinstance(given, list):
            raise TypeError("a list was expected")
        return [read(each) for each in given]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _no_agent(answer, f"its answer cannot be read: {error!r}"[:300]) from None


def _no_agent(answer: Answer, reason: str) -> ProtocolError:
    return ProtocolError(f"{answer.url} is no agent with lists: {reason}")
