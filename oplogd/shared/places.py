"""The places of consumers: their number, and the number of each host, over all processes."""

import hashlib
import mmap
import secrets
from typing import Literal, Protocol

from oplogd.shared.record_lock import RecordLock

# The limit that a new consumer would exceed.
Full = Literal["max_clients", "max_clients_per_address"]

# More consumers than a process can have open files on usual systems. Bounds the shared memory.
MOST_PER_PROCESS = 1 << 20

_WORD = 8
# Of a slot: two words of the key of a host, and the number of its consumers. 0: the slot is free.
_SLOT_WORDS = 3


class Places(Protocol):
    """Counts the consumers of an agent."""

    def take(self, host: str, most: int, most_per_host: int) -> Full | None:
        """Take a place for a consumer of a host.

        Take none, and return the reason, if ``most`` consumers are there or ``most_per_host`` of
        this host (0: no limit).
        """

    def free(self, host: str) -> None:
        """Give back a place that ``take`` took for this host."""


class OwnPlaces:
    """The places of a process without others."""

    def __init__(self) -> None:
        self._count = 0
        self._per_host: dict[str, int] = {}

    def take(self, host: str, most: int, most_per_host: int) -> Full | None:
        if self._count >= most:
            return "max_clients"
        here = self._per_host.get(host, 0)
        if most_per_host and here >= most_per_host:
            return "max_clients_per_address"
        self._per_host[host] = here + 1
        self._count += 1
        return None

    def free(self, host: str) -> None:
        self._count -= 1
        left = self._per_host[host] - 1
        if left:
            self._per_host[host] = left
        else:
            del self._per_host[host]


class SharedPlaces:
    """The places of ``count`` processes together, for at most ``max_clients`` consumers.

    Make it before the fork. Each process writes to a table of its own, and reads those of all
    others, both under one lock.
    """

    def __init__(self, count: int, max_clients: int) -> None:
        self.lock = RecordLock()
        # Secret, so that no client chooses addresses whose slots collide.
        self.key = secrets.token_bytes(32)
        self.capacity = min(max_clients, MOST_PER_PROCESS)
        slots = 1 << (2 * self.capacity - 1).bit_length()
        self.tables = [_Table(slots) for _ in range(count)]

    def of(self, number: int) -> "WorkerPlaces":
        """Return the places as the process with this number sees them."""
        return WorkerPlaces(self, number)

    def clear(self, number: int) -> None:
        """Give back all places of a process that has died.

        Without the lock, whose holder may be suspended. Others may count too few meanwhile.
        """
        self.tables[number].clear()


class WorkerPlaces:
    """The places of all processes, seen by one of them."""

    def __init__(self, shared: SharedPlaces, number: int) -> None:
        self._shared = shared
        self._own = shared.tables[number]

    def take(self, host: str, most: int, most_per_host: int) -> Full | None:
        shared, own = self._shared, self._own
        key = self._key(host)
        with shared.lock:
            if own.total >= shared.capacity or sum(each.total for each in shared.tables) >= most:
                return "max_clients"
            if most_per_host and sum(each.count(key) for each in shared.tables) >= most_per_host:
                return "max_clients_per_address"
            own.add(key)
        return None

    def free(self, host: str) -> None:
        key = self._key(host)
        with self._shared.lock:
            self._own.remove(key)

    def _key(self, host: str) -> tuple[int, int]:
        data = host.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, key=self._shared.key, digest_size=2 * _WORD).digest()
        return int.from_bytes(digest[:_WORD], "big"), int.from_bytes(digest[_WORD:], "big")


class _Table:
    """Numbers of consumers by host, in shared memory: open addressing, at most half full.

    Only a process that has died leaves a half-written table. Its consumers are gone, so a wrong
    count of them does no harm until the table is cleared.
    """

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, _WORD * (1 + _SLOT_WORDS * slots))
        words = memoryview(self._memory).cast("Q")
        self._total, self._words = words[:1], words[1:]
        self._mask = slots - 1

    @property
    def total(self) -> int:
        return self._total[0]

    def count(self, key: tuple[int, int]) -> int:
        return self._words[self._find(key) + 2]

    def add(self, key: tuple[int, int]) -> None:
        words, place = self._words, self._find(key)
        words[place], words[place + 1] = key
        words[place + 2] += 1
        self._total[0] += 1

    def remove(self, key: tuple[int, int]) -> None:
        words, place = self._words, self._find(key)
        self._total[0] -= 1
        if words[place + 2] > 1:
            words[place + 2] -= 1
        else:
            self._close(place // _SLOT_WORDS)

    def clear(self) -> None:
        self._memory.madvise(mmap.MADV_REMOVE)

    def _find(self, key: tuple[int, int]) -> int:
        """Return the first word of the slot of a key, or of the free slot for it."""
        words, mask = self._words, self._mask
        first, second = key
        slot = first & mask
        while True:
            place = _SLOT_WORDS * slot
            if not words[place + 2] or (words[place] == first and words[place + 1] == second):
                return place
            slot = (slot + 1) & mask

    def _close(self, gap: int) -> None:
        """Free a slot. Keys behind it move up if a search from their own slot would stop there."""
        words, mask = self._words, self._mask
        slot = gap
        while True:
            slot = (slot + 1) & mask
            place = _SLOT_WORDS * slot
            if not words[place + 2]:
                break
            if (slot - words[place]) & mask >= (slot - gap) & mask:
                to = _SLOT_WORDS * gap
                words[to : to + _SLOT_WORDS] = words[place : place + _SLOT_WORDS]
                gap = slot
        words[_SLOT_WORDS * gap + 2] = 0
