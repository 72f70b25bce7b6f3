"""Limits guesses of a password. No I/O.

A guess is a wrong password that was not tried before. It counts for its address, for the network of
this address, and for everybody together. A consumer with a wrong password repeats it again and
again, and so makes one guess, however many such consumers there are.

An address that sent the right password is **known** from then on: only its own guesses count for
it. So strangers who use up the common limit cannot lock out the consumers and producers that worked
before.

Strangers must not lock out new addresses either. 1.1 guesses per second from three networks keep
EVERYBODY empty. So while it is empty, each network still has a few checks: those of its **cell**. A
keyed hash puts every network into one of CELLS cells, and only wrong attempts spend a check. A
guesser with n networks empties at most n of the 1,024 cells, whatever its rate: a new address of
another network is locked out with a probability of at most n / 1,024, which is 0.3 % for three. To
lock out all, a guesser needs thousands of networks, since it does not know the key.

The price: the cells hold 1,024 x 3 = 3,072 guesses, and get 1,024 x 24 = 24,576 per day. With
EVERYBODY that is at most 110,976 per day for all guessers of the world. The cells have a fixed size
however many addresses come.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from oplogd.host.networks import units_of


class AttemptLimit(NamedTuple):
    """``burst`` guesses at once, then one more every ``seconds``."""

    burst: int
    seconds: float

    @property
    def refill_seconds(self) -> float:
        """Time until the whole burst is available again."""
        return self.burst * self.seconds


# For an IPv4 address or an IPv6 /64, the smallest unit that one customer gets: 8,640 guesses per
# day.
ADDRESS = AttemptLimit(10, 10.0)

# For an IPv4 /24 or an IPv6 /48, which one guesser can easily own: as much as four addresses.
NETWORK = AttemptLimit(40, 2.5)

# For all addresses that are not known together: 86,400 guesses per day.
EVERYBODY = AttemptLimit(500, 1.0)

# For a cell of networks, while EVERYBODY is used up.
CELL = AttemptLimit(3, 3_600.0)
CELLS = 1_024

_REMEMBERED_PER_ADDRESS = 16
_REMEMBERED = 1_024
_KNOWN = 4_096
_BUCKETS = 2_048


class MemoryBounds(NamedTuple):
    """Bounds on the memory of an ``AttemptLimiter``.

    Buckets that are not full are kept beyond ``buckets``. EVERYBODY and the cells bound their
    number.
    """

    buckets: int = _BUCKETS
    known: int = _KNOWN
    remembered: int = _REMEMBERED
    remembered_per_address: int = _REMEMBERED_PER_ADDRESS


class MemoryUse(NamedTuple):
    """Numbers of items that an ``AttemptLimiter`` holds.

    ``remembered_per_address``: the largest number of one address.
    """

    addresses: int
    networks: int
    known: int
    remembered: int
    remembered_per_address: int


class _Bucket:
    """A token bucket of guesses. ``wrong``: the last wrong attempts that it counted."""

    __slots__ = ("_at", "_left", "_limit", "_remembered", "wrong")

    def __init__(self, limit: AttemptLimit, now: float, remembered: int) -> None:
        self._limit = limit
        self._left = float(limit.burst)
        self._at = now
        self._remembered = remembered
        self.wrong: OrderedDict[bytes, None] = OrderedDict()

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until the next guess, 0 if it is possible now."""
        left = self._left_at(now)
        return 0.0 if left >= 1 else (1 - left) * self._limit.seconds

    def is_full(self, now: float) -> bool:
        return self._left_at(now) >= self._limit.burst

    def spend(self, attempt: bytes, now: float) -> None:
        self._left = self._left_at(now) - 1
        self._at = now
        self.remember(attempt)

    def remember(self, attempt: bytes) -> None:
        self.wrong[attempt] = None
        self.wrong.move_to_end(attempt)
        if len(self.wrong) > self._remembered:
            self.wrong.popitem(last=False)

    def _left_at(self, now: float) -> float:
        return min(float(self._limit.burst), self._left + (now - self._at) / self._limit.seconds)


class _Buckets:
    """Buckets of many addresses or networks, in the order of their last guess.

    A bucket is removed only once it is full again, so removing one never gives away a guess. Few
    are not full: each of them had a guess within ``refill_seconds`` that EVERYBODY or a cell
    counted too, or belongs to a known address.
    """

    def __init__(self, limit: AttemptLimit, size: int, remembered: int) -> None:
        self._limit = limit
        self._size = size
        self._remembered = remembered
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def get(self, key: str) -> _Bucket | None:
        return self._buckets.get(key)

    def wait_seconds(self, key: str, now: float) -> float:
        bucket = self._buckets.get(key)
        return bucket.wait_seconds(now) if bucket else 0.0

    def spend(self, key: str, attempt: bytes, now: float) -> None:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._limit, now, self._remembered)
        bucket.spend(attempt, now)
        self._buckets.move_to_end(key)
        while len(self._buckets) > self._size and next(iter(self._buckets.values())).is_full(now):
            self._buckets.popitem(last=False)

    def most_remembered(self) -> int:
        """Return the largest number of attempts that one bucket remembers."""
        return max((len(bucket.wrong) for bucket in self._buckets.values()), default=0)


class _Cells:
    """A bucket for each cell of networks. ``key`` makes cells that a guesser cannot foresee."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._buckets: dict[int, _Bucket] = {}  # at most CELLS

    def wait_seconds(self, network: str, now: float) -> float:
        bucket = self._buckets.get(self._cell(network))
        return bucket.wait_seconds(now) if bucket else 0.0

    def spend(self, network: str, now: float) -> None:
        cell = self._cell(network)
        if cell not in self._buckets:
            self._buckets[cell] = _Bucket(CELL, now, 0)
        self._buckets[cell].spend(b"", now)

    def _cell(self, network: str) -> int:
        digest = hashlib.blake2b(network.encode(), key=self._key, digest_size=8).digest()
        return int.from_bytes(digest, "big") % CELLS


class AttemptLimiter:
    """Limits the guesses of one password.

    ``attempt`` stands for the password tried, in a form that does not reveal it. ``key``: secret,
    for the cells of networks; None makes one.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        bounds: MemoryBounds | None = None,
        key: bytes | None = None,
    ) -> None:
        self._clock = clock
        self._cells = _Cells(key or secrets.token_bytes(32))
        bounds = bounds or MemoryBounds()
        self._max_known = bounds.known
        self._everybody = _Bucket(EVERYBODY, clock(), bounds.remembered)
        self._networks = _Buckets(NETWORK, bounds.buckets, 0)
        self._addresses = _Buckets(ADDRESS, bounds.buckets, bounds.remembered_per_address)
        self._known: OrderedDict[str, None] = OrderedDict()

    def wait_seconds(self, address: str, attempt: bytes) -> float:
        """Return the seconds until this attempt may be checked, 0 if it may be checked now.

        A remembered wrong attempt may always be checked.
        """
        if self._is_wrong(address, attempt):
            return 0.0
        now = self._clock()
        own, network = units_of(address)
        address_wait = self._addresses.wait_seconds(own, now)
        if own in self._known:
            return address_wait
        shared = self._everybody.wait_seconds(now)
        if shared:
            shared = min(shared, self._cells.wait_seconds(network, now))
        return max(address_wait, self._networks.wait_seconds(network, now), shared)

    def failed(self, address: str, attempt: bytes) -> None:
        """Count a wrong attempt. ``wait_seconds`` must have returned 0 for it."""
        own, network = units_of(address)
        if self._is_wrong(address, attempt):
            bucket = (
                self._everybody if attempt in self._everybody.wrong else self._addresses.get(own)
            )
            assert bucket is not None
            bucket.remember(attempt)
            return
        now = self._clock()
        self._addresses.spend(own, attempt, now)
        if own not in self._known:
            self._networks.spend(network, attempt, now)
            if self._everybody.wait_seconds(now):
                self._cells.spend(network, now)
                self._everybody.remember(attempt)
            else:
                self._everybody.spend(attempt, now)

    def succeeded(self, address: str) -> None:
        """Make the address known. The addresses that succeeded last are kept."""
        own, _ = units_of(address)
        self._known[own] = None
        self._known.move_to_end(own)
        if len(self._known) > self._max_known:
            self._known.popitem(last=False)

    def memory_use(self) -> MemoryUse:
        return MemoryUse(
            addresses=len(self._addresses),
            networks=len(self._networks),
            known=len(self._known),
            remembered=len(self._everybody.wrong),
            remembered_per_address=self._addresses.most_remembered(),
        )

    def _is_wrong(self, address: str, attempt: bytes) -> bool:
        if attempt in self._everybody.wrong:
            return True
        bucket = self._addresses.get(units_of(address)[0])
        return bucket is not None and attempt in bucket.wrong
