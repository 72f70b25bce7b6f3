"""Limits guesses of a password. No I/O.

A guess is a wrong password not tried before. It counts for its address, for the network of
this address, and for all addresses together. A repeated wrong password is one guess.

The right password makes an address **known** from then on: only its own guesses count for
it. So strangers cannot lock out the consumers and producers that worked before.

Strangers must not lock out new addresses either. So while EVERYBODY is empty, each network still
has the few checks of its **cell**. A keyed hash puts every network into one of CELLS cells,
and only wrong attempts spend a check. A guesser with n networks empties at most n cells.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from oplogd.host.senders import units_of
from oplogd.web.access.guesses.buckets import (
    AttemptLimit,
    Bucket,
    Buckets,
    BucketState,
    BucketStates,
)

# For an IPv4 address or an IPv6 /64, the smallest unit of one customer: 8,640 guesses per
# day.
ADDRESS = AttemptLimit(10, 10.0)

# For an IPv4 /24 or an IPv6 /48, which one guesser can easily own: as much as four addresses.
NETWORK = AttemptLimit(40, 2.5)

# For all unknown addresses together: 86,400 guesses per day.
EVERYBODY = AttemptLimit(500, 1.0)

# For a cell of networks, while EVERYBODY is used up.
CELL = AttemptLimit(3, 3_600.0)
CELLS = 1_024


class MemoryBounds(NamedTuple):
    """Bounds on the numbers of items in an ``AttemptLimiter``.

    Buckets not yet full remain beyond ``buckets``. EVERYBODY and the cells bound their
    number.
    """

    buckets: int = 2_048
    known: int = 4_096
    remembered: int = 1_024
    remembered_per_address: int = 16


class LimiterState(NamedTuple):
    """All that an ``AttemptLimiter`` remembers, each part oldest first."""

    everybody: BucketState
    cells: BucketStates
    networks: BucketStates
    addresses: BucketStates
    known: dict[str, int]
    successes: int


class AttemptLimiter:
    """Limits the guesses of one password.

    ``attempt`` stands for the password tried, in a form that does not reveal it. ``key``: secret,
    so that a guesser cannot foresee the cells of networks. None makes one.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        bounds: MemoryBounds | None = None,
        key: bytes | None = None,
    ) -> None:
        self._clock = clock
        self._key = key or secrets.token_bytes(32)
        bounds = bounds or MemoryBounds()
        self._max_known = bounds.known
        self._cells = Buckets(CELL, CELLS, 0)
        # Full, whatever the time of the first guess.
        self.everybody = Bucket(EVERYBODY, float("-inf"), bounds.remembered)
        self.networks = Buckets(NETWORK, bounds.buckets, 0)
        self.addresses = Buckets(ADDRESS, bounds.buckets, bounds.remembered_per_address)
        # The number of the success that each known address is kept for.
        self.known: OrderedDict[str, int] = OrderedDict()
        self._successes = 0

    def judge(self, address: str, attempt: bytes, *, is_right: bool) -> float:
        """Count an attempt that may be checked now, and return 0.

        Otherwise return the seconds until it may be checked, and count nothing.
        """
        own, network = units_of(address)
        now = self._clock()
        wait = self.wait_of(own, network, attempt, now)
        if not wait:
            self.count(own, network, attempt, now, is_right=is_right)
        return wait

    def count(self, own: str, network: str, attempt: bytes, now: float, *, is_right: bool) -> None:
        """Count an attempt of an address of these units. ``wait_of`` must have returned 0."""
        if is_right:
            self.count_right(own)
        else:
            self.count_wrong(own, network, attempt, now)

    def wait_seconds(self, address: str, attempt: bytes) -> float:
        """Return the seconds until this attempt may be checked, 0 if it may be checked now.

        A remembered wrong attempt may always be checked.
        """
        return self.wait_of(*units_of(address), attempt, self._clock())

    def wait_of(self, own: str, network: str, attempt: bytes, now: float) -> float:
        """Return as ``wait_seconds``, for an address of these units."""
        if self._is_wrong(own, attempt):
            return 0.0
        address_wait = self.addresses.wait_seconds(own, now)
        if own in self.known:
            return address_wait
        shared = self.everybody.wait_seconds(now)
        if shared:
            shared = min(shared, self._cells.wait_seconds(self._cell(network), now))
        return max(address_wait, self.networks.wait_seconds(network, now), shared)

    def failed(self, address: str, attempt: bytes) -> None:
        """Count a wrong attempt. ``wait_seconds`` must have returned 0 for it."""
        self.count_wrong(*units_of(address), attempt, self._clock())

    def count_wrong(self, own: str, network: str, attempt: bytes, now: float) -> None:
        """Count as ``failed``, for an address of these units."""
        if self._is_wrong(own, attempt):
            bucket = self.everybody if attempt in self.everybody.wrong else self.addresses.get(own)
            assert bucket is not None
            bucket.remember(attempt)
            return
        self.addresses.spend(own, attempt, now)
        if own not in self.known:
            self.networks.spend(network, attempt, now)
            if self.everybody.wait_seconds(now):
                self._cells.spend(self._cell(network), attempt, now)
                self.everybody.remember(attempt)
            else:
                self.everybody.spend(attempt, now)

    def succeeded(self, address: str) -> None:
        """Make the address known. The last successful addresses are remembered."""
        own, _ = units_of(address)
        self.count_right(own)

    def count_right(self, own: str) -> None:
        """Count as ``succeeded``, for an address of this unit."""
        if self.is_freshly_known(own):
            return
        self._successes += 1
        self.known[own] = self._successes
        self.known.move_to_end(own)
        if len(self.known) > self._max_known:
            self.known.popitem(last=False)

    def is_freshly_known(self, own: str) -> bool:
        """Return whether another success of this address would change nothing.

        An address is noted again only when it is no longer in the newer half.
        """
        noted = self.known.get(own)
        return noted is not None and self._successes - noted <= self._max_known // 2

    def forget_attempts_of_addresses(self) -> None:
        """Forget which wrong attempts single addresses made, but no count of them."""
        states = self.addresses.states
        self.addresses.states = {own: (*state[:2], []) for own, state in states.items()}

    @property
    def state(self) -> LimiterState:
        return LimiterState(
            self.everybody.state,
            self._cells.states,
            self.networks.states,
            self.addresses.states,
            dict(self.known),
            self._successes,
        )

    @state.setter
    def state(self, state: LimiterState) -> None:
        self.everybody.state = state.everybody
        self._cells.states = state.cells
        self.networks.states = state.networks
        self.addresses.states = state.addresses
        self.known = OrderedDict(state.known)
        self._successes = state.successes

    def _cell(self, network: str) -> str:
        digest = hashlib.blake2b(network.encode(), key=self._key, digest_size=8).digest()
        return str(int.from_bytes(digest, "big") % CELLS)

    def _is_wrong(self, own: str, attempt: bytes) -> bool:
        if attempt in self.everybody.wrong:
            return True
        bucket = self.addresses.get(own)
        return bucket is not None and attempt in bucket.wrong
