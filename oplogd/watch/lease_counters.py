"""Counts of leases and fences, as this agent sees them."""

import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from oplogd.shared.inbox import Inbox
from oplogd.shared.tally import Tally, tally
from oplogd.store.leases import Lease

# The kind of the messages between workers.
_KIND = "lease"


@tally
class LeaseTally(Tally):
    """See ``LeaseCounts``."""

    polls: int
    terms: int
    stale_publishes: int


class LeaseCounts(NamedTuple):
    """Figures of this agent: ``held`` is the present number, the others count since the start.

    ``held``: leases whose holder polls this agent. ``terms``: terms with which a holder has begun
    to poll this agent. Before, it acquired or refreshed the lease, or polled another agent.
    ``stale_publishes``: publishes refused because their term was over.
    """

    held: int
    polls: int
    terms: int
    stale_publishes: int


class _Held(msgspec.Struct, array_like=True):
    """A lease as a worker tells the others. ``term``: None after a release."""

    name: str
    term: int | None
    left_ms: int = 0


_decode = msgspec.msgpack.Decoder(_Held).decode
_decode_all = msgspec.msgpack.Decoder(list[_Held]).decode


class LeaseCounters:
    """Remembers held leases until they expire. ``clock`` returns seconds and never steps back.

    ``inbox``: of this process. By it the workers of an agent remember the same leases, so that a
    term counts once. If all of them die at the same time, the present terms count again.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        counted: LeaseTally | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        self._clock = clock
        self._inbox = inbox
        if inbox is not None:
            inbox.on(_KIND, self._hear)
            inbox.answer(_KIND, self._answer)
        # Name -> term, and its end in seconds of the clock.
        self._held: dict[str, tuple[int, float]] = {}
        self._counted = counted or LeaseTally()

    @property
    def counts(self) -> LeaseCounts:
        counted = self._counted
        return LeaseCounts(len(self.held), counted.polls, counted.terms, counted.stale_publishes)

    @property
    def held(self) -> Collection[str]:
        """The names of leases whose holder polls this agent."""
        self._drop_expired()
        return self._held.keys()

    async def learn(self, others: Iterable[int]) -> None:
        """Remember the leases that other workers know. Call it before the first poll.

        ``others``: the numbers of those that can answer. Waits for at most ANSWER_SECONDS.
        """
        if self._inbox is not None:
            for body in (await self._inbox.ask(_KIND, others=others)).values():
                for held in _decode_all(body):
                    self._hear_of(held)

    def add_poll(self, holder: str, lease: Lease) -> None:
        """Count the answer to a poll by ``holder``."""
        self._counted.polls += 1
        if lease.holder != holder:
            return
        term, _ = self._held.get(lease.name, (None, 0.0))
        if term != lease.term:
            self._counted.terms += 1
        held = _Held(lease.name, lease.term, lease.left_ms)
        self._remember(held)
        self._tell(held)

    def add_release(self, name: str) -> None:
        """Forget a released lease."""
        self._held.pop(name, None)
        self._tell(_Held(name, None))

    def add_stale_publish(self) -> None:
        self._counted.stale_publishes += 1

    def _remember(self, held: _Held) -> None:
        if held.term is None:
            self._held.pop(held.name, None)
        else:
            if held.name not in self._held:
                self._drop_expired()
            self._held[held.name] = held.term, self._clock() + held.left_ms / 1000

    def _tell(self, held: _Held) -> None:
        if self._inbox is not None:
            self._inbox.broadcast(_KIND, msgspec.msgpack.encode(held))

    async def _answer(self, question: bytes) -> bytes:
        self._drop_expired()
        now = self._clock()
        return msgspec.msgpack.encode(
            [
                _Held(name, term, round(1000 * (end - now)))
                for name, (term, end) in self._held.items()
            ]
        )

    def _hear(self, sender: int, body: bytes) -> None:
        self._hear_of(_decode(body))

    def _hear_of(self, held: _Held) -> None:
        known, _ = self._held.get(held.name, (0, 0.0))
        if held.term is None or held.term >= known:  # or it comes late
            self._remember(held)

    def _drop_expired(self) -> None:
        now = self._clock()
        self._held = {name: held for name, held in self._held.items() if held[1] > now}
