"""Lists of everything at an agent, in pages, and the meaning of their answers. No I/O."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from oplogc.http.answers import Answer
from oplogc.topics.calls.call import Call, no_agent, read_list, text
from oplogc.topics.messages.names import TopicName

NEXT = "oplog-next"
MAX_PAGE = 1000
_KIND = "lists"
_T = TypeVar("_T")


class Namespace(NamedTuple):
    """A namespace with topics. ``topics``: their number."""

    name: str
    topics: int


class Lease(NamedTuple):
    """A lease, held now or earlier.

    ``holder``: the last one. None after a release. ``expires_in_ms``: 0 if anyone may acquire it.
    ``note``: text of the holder.
    """

    name: str
    holder: str | None
    term: int
    expires_in_ms: int
    note: str


class ListedPointer(NamedTuple):
    """A pointer in one topic.

    ``state``: open. Later agents may have other states. ``holds``: whether committed readers of the
    topic wait for the pointer. ``published``: whether messages were published under it. Otherwise
    they are only stored. ``expires_at``: time after which the pointer counts as aborted. None:
    never.
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


def namespaces(answer: Answer) -> tuple[Namespace, ...]:
    """Raises ProtocolError."""
    return read_list(answer, _KIND, lambda each: Namespace(text(each["name"]), int(each["topics"])))


def leases(answer: Answer) -> tuple[Lease, ...]:
    """Raises ProtocolError."""
    return read_list(answer, _KIND, _lease)


def pointers(answer: Answer) -> tuple[ListedPointer, ...]:
    """Raises ProtocolError."""
    return read_list(answer, _KIND, _pointer)


async def all_pages(
    call: Call, ask: Callable[[Call], Awaitable[Answer]], read: Callable[[Answer], tuple[_T, ...]]
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
            raise no_agent(answer, _KIND, "its pages do not end")
        after = following
        call = call._replace(query={**call.query, "after": after})


def _list(path: str) -> Call:
    return Call("GET", path, query={"limit": str(MAX_PAGE)})


def _lease(given: Any) -> Lease:
    holder = given["holder"]
    return Lease(
        text(given["name"]),
        None if holder is None else text(holder),
        int(given["term"]),
        int(given["expires_in_ms"]),
        text(given["note"]),
    )


def _pointer(given: Any) -> ListedPointer:
    expires = given.get("expires_at")
    return ListedPointer(
        TopicName(text(given["namespace"]), text(given["topic"])),
        int(given["pointer"]),
        text(given["state"]),
        bool(given["holds"]),
        datetime.fromisoformat(given["begun_at"]),
        None if expires is None else datetime.fromisoformat(expires),
        bool(given["published"]),
    )
