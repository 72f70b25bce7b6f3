"""The workers of an agent: what they share, and the place of one of them."""

import ctypes
import hmac
import mmap
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from oplogd.shared.bells import Bell, Bells
from oplogd.shared.heads import Heads, HeadTables, SharedHeads
from oplogd.shared.inbox import Mailboxes
from oplogd.shared.journal import Journal
from oplogd.shared.page import Page
from oplogd.shared.place import WriterPlace
from oplogd.shared.places import SharedPlaces, WorkerPlaces
from oplogd.shared.role import Role
from oplogd.shared.tally import Tally, tally
from oplogd.shared.turn import Turns
from oplogd.store.numbers import NUMBER_BITS
from oplogd.store.sqlite.file.connection import BUSY_SECONDS
from oplogd.topics.counters import PAGE_BYTES
from oplogd.workers.tallies import Tallies

# More than the files of passwords and rights may have.
_PASSWORDS = 16 << 20


@tally
class Life(Tally):
    """A worker as its supervisor sees it. ``began``: in seconds of the monotonic clock.

    ``starts``: how often a process began to serve in this place. ``deaths``: how often one ended,
    also before it served. ``is_dead``: 1 from the end of one until the next serves.
    """

    pid: int
    starts: int
    deaths: int
    is_dead: int
    began: float


class StoreWorkers:
    """What several workers share of one store. Needs Linux.

    ``turns``: to write to SQLite. ``bells``: rung after each write. ``upkeep``: the regular work on
    the store. ``sweep``: rung to ask the worker with the upkeep for a sweep.
    """

    def __init__(self, count: int) -> None:
        self.turns = Turns(count, BUSY_SECONDS)
        self.bells = Bells(count)
        self.heads = HeadTables(count, NUMBER_BITS)
        self.upkeep = Role()
        self.sweep = Bell()


class Workers:
    """What the workers share. It is made before they are forked, and outlives each of them.

    ``count``: their number, at least 1. More than one need Linux. ``max_clients``: of all workers
    together; one worker alone does not need it. ``started``: in seconds of the monotonic clock.
    ``tallies``, ``lives`` and ``pages`` are by number. ``store``: None for one worker.
    """

    def __init__(
        self,
        count: int = 1,
        *,
        max_clients: int = 10_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count = count
        self.monotonic = monotonic
        self.started = monotonic()
        self.tallies: Sequence[Tallies] = _shared(Tallies, count)
        self.lives: Sequence[Life] = _shared(Life, count)
        # Figures by topic. Without other workers nothing reads them.
        self.pages = _pages(count) if count > 1 else []
        self.mailboxes = Mailboxes(count)
        self._secret = secrets.token_bytes(32)
        self.store = StoreWorkers(count) if count > 1 else None
        self.places = SharedPlaces(count, max_clients) if count > 1 else None
        # The counted attempts of the passwords, by the side of each.
        self.attempts = {side: Journal() for side in ("reading", "writing")} if count > 1 else {}

        # The present passwords and rights, and the role of the worker that looks at their files.
        self.passwords = Journal(_PASSWORDS, _PASSWORDS) if count > 1 else None
        self.passwords_role = Role() if count > 1 else None

    def secret_of(self, purpose: str) -> bytes:
        """Return a secret of 32 bytes for a purpose, the same in all workers of this run."""
        return hmac.digest(self._secret, purpose.encode(), "sha256")

    def began(self, number: int, pid: int) -> None:
        """Note that a process has begun to serve in this place."""
        life = self.lives[number]
        life.pid, life.began = pid, self.monotonic()
        life.starts += 1
        life.is_dead = 0

    def is_alive(self, number: int) -> bool:
        """Return whether a process serves in this place. Its supervisor knows of no end."""
        life = self.lives[number]
        return life.starts > 0 and not life.is_dead

    def settle(self, number: int) -> None:
        """Settle what a worker that has died had, before the next one begins.

        The operations in its queues are lost, so they count as discarded. Its consumers give back
        their places.
        """
        counters = self.tallies[number].ingest
        if (lost := counters.in_queues) > 0:
            counters.discarded += lost
        else:  # it died between two counters: operations of its spool are found again
            counters.recovered -= lost
        life = self.lives[number]
        life.is_dead = 1
        life.deaths += 1
        self.mailboxes.empty(number)
        if self.places is not None:
            self.places.clear(number)

    def close(self) -> None:
        """Close the sockets between the workers."""
        self.mailboxes.close()


class Worker(NamedTuple):
    """The place of one worker. A worker that has died is replaced in the same place.

    ``number``: 0 to ``count`` - 1.
    """

    workers: Workers
    number: int

    @property
    def places(self) -> WorkerPlaces | None:
        """The places of consumers, seen by this worker; None if it is alone."""
        shared = self.workers.places
        return None if shared is None else shared.of(self.number)

    @classmethod
    def alone(cls) -> "Worker":
        """Return the only worker of an agent."""
        return cls(Workers(), 0)

    @property
    def alive_others(self) -> list[int]:
        """The numbers of the other workers that serve."""
        workers = self.workers
        return [n for n in range(workers.count) if n != self.number and workers.is_alive(n)]

    @property
    def tallies(self) -> Tallies:
        """The counters of this place."""
        return self.workers.tallies[self.number]

    @property
    def page(self) -> Page | None:
        """The figures by topic of this place. None: there are no other workers."""
        return self.workers.pages[self.number] if self.workers.pages else None

    @property
    def writer_place(self) -> WriterPlace | None:
        """Return the place among the workers that write to one file. None: there are none."""
        shared = self.workers.store
        if shared is None:
            return None
        is_first = not any(life.starts for life in self.workers.lives)
        turn = shared.turns.each[self.number]
        return WriterPlace(turn, shared.bells, shared.heads, self.number, is_first)

    def heads(self) -> Heads:
        """Return the logs as this worker knows them. Call it once in the worker's process."""
        shared = self.workers.store
        return Heads() if shared is None else SharedHeads(shared.heads, self.number)


def _shared(kind: Any, count: int) -> Any:
    """Return an array of structures, in memory that stays shared after a fork."""
    array = kind * count
    return array.from_buffer(mmap.mmap(-1, ctypes.sizeof(array)))


def _pages(count: int) -> list[Page]:
    memory = memoryview(mmap.mmap(-1, PAGE_BYTES * count))
    return [Page(memory[at : at + PAGE_BYTES]) for at in range(0, len(memory), PAGE_BYTES)]
