"""The events of a relay's life, for handlers. No I/O."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID


class LeaderAcquired(NamedTuple):
    """This relay leads. It marks rows once the handlers are done."""

    leader_id: UUID
    term: int


class LeaderRefreshed(NamedTuple):
    """This relay leads with a new leader id and term, after a failure.

    ``failures``: number of this failure in its series, from 1. A minute without one ends a series.
    """

    leader_id: UUID
    term: int
    reason: str
    failures: int = 1


class LeaderRevoked(NamedTuple):
    """This relay gives up the lead in order: it has sent all it had begun to send.

    Another relay leads once the handlers are done: they delay the hand-over.
    """

    leader_id: UUID
    term: int


class LeaderFenced(NamedTuple):
    """This relay has lost the lead: another one may lead already. Handlers delay nothing."""

    leader_id: UUID
    term: int
    reason: str


class MeterRead(NamedTuple):
    """Figures of a leader, every ``Limits.meter`` seconds.

    ``rate``: rows per second since the last reading. ``relayed``: rows since the start.
    ``backlog``, ``oldest_seconds``: see ``Backlog``; None if the database does not tell.
    ``blocked``: keys whose first row is refused.
    """

    rate: float
    relayed: int
    in_flight: int
    in_flight_keys: int
    backlog: int | None
    oldest_seconds: float | None
    blocked: int


Event = LeaderAcquired | LeaderRefreshed | LeaderRevoked | LeaderFenced | MeterRead
Handler = Callable[[Event], Awaitable[None] | None]
