"""Lists of everything at an agent, in pages."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from oplogc.topics.calls.agents import Agents
from oplogc.topics.calls.call import Call, list_reader, members_of, no_agent, query, text
from oplogc.topics.calls.consumers import PATH as CONSUMERS
from oplogc.topics.calls.consumers import ListedConsumer
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
    topic wait for it. ``published``: whether messages were published under it, or only stored.
    ``expires_at``: time after which it counts as aborted. None: never.
    """

    topic: TopicName
    pointer: int
    state: str
    holds: bool
    begun_at: datetime
    expires_at: datetime | None
    published: bool


def _listed_pointer(given: Any) -> ListedPointer:
    name = TopicName(text(given["namespace"]), text(given["topic"]))
    return members_of(ListedPointer)({**given, "topic": name})


async def namespaces(agents: Agents) -> tuple[Namespace, ...]:
    """Raises ProtocolError and the errors of ``Agents.confirmed``."""
    return await _all(agents, "/v1/namespaces", members_of(Namespace))


async def leases(agents: Agents) -> tuple[Lease, ...]:
    """Raises as ``namespaces``."""
    return await _all(agents, "/v1/leases", members_of(Lease))


async def pointers(agents: Agents) -> tuple[ListedPointer, ...]:
    """Raises as ``namespaces``."""
    return await _all(agents, "/v1/pointers", _listed_pointer)


async def consumers(agents: Agents) -> tuple[ListedConsumer, ...]:
    """Raises as ``namespaces``."""
    return await _all(agents, CONSUMERS, members_of(ListedConsumer))


async def _all(agents: Agents, path: str, convert: Callable[[Any], _T]) -> tuple[_T, ...]:
    """Return the items of all pages."""
    found: list[_T] = []
    after: str | None = None
    while True:
        asked = query(limit=MAX_PAGE, after=after)
        call = Call("GET", path, list_reader(_KIND, convert), query=asked)
        answer = await agents.confirmed(call)
        found += call.read(answer)
        following = answer.headers.get(NEXT, "")
        if not following:
            return tuple(found)
        if following == after:
            raise no_agent(answer, _KIND, "its pages do not end")
        after = following
