"""Slows the guessing of a password. No I/O.

A guess is a wrong password that was not tried before. It counts for the address it came from, for the network around this
address, and for everybody together. A consumer that was set up with a wrong password asks again and again and so makes
one guess, however many such consumers there are.

An address that gave the right password is known from then on: only its own guesses count for it. So strangers who use up
the common budget cannot lock out the consumers and producers that worked before.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple


class Budget(NamedTuple):
    """``free`` guesses at once, then one more each ``seconds``."""

    free: int
    seconds: float

    @property
    def refill_seconds(self) -> float:
        """How long an empty budget takes to be full again."""
        return self.free * self.seconds


ADDRESS = Budget(10, 10.0)
"""Of an IPv4 address or an IPv6 /64, the least that one customer has: 8,640 a day."""

NETWORK = Budget(40, 2.5)
"""Of an IPv4 /24 or an IPv6 /48, which one guesser can easily have whole: as much as four addresses."""

EVERYBODY = Budget(500, 1.0)
"""Of all addresses that are not known: 86,400 a day."""

_REMEMBERED_HERE = 16
_REMEMBERED = 1_024
_KNOWN = 4_096
_RECORDS = 2_048
_UNKNOWN = "unknown"


class _Record:
    """The rest of a budget. ``wrong``: the attempts last paid for."""

    __slots__ = ("_at", "_budget", "_left", "_remembered", "wrong")

    def __init__(self, budget: Budget, now: float, remembered: int) -> None:
        self._budget = budget
        self._left = float(budget.free)
        self._at = now
        self._remembered = remembered
        self.wrong: OrderedDict[bytes, None] = OrderedDict()

    def wait(self, now: float) -> float:
        """Seconds until the next guess; 0: now."""
        left = self._left_at(now)
        return 0.0 if left >= 1 else (1 - left) * self._budget.seconds

    def is_full(self, now: float) -> bool:
        return self._left_at(now) >= self._budget.free

    def pay(self, attempt: bytes, now: float) -> None:
        self._left = self._left_at(now) - 1
        self._at = now
        self.remember(attempt)

    def remember(self, attempt: bytes) -> None:
        self.wrong[attempt] = None
        self.wrong.move_to_end(attempt)
        if len(self.wrong) > self._remembered:
            self.wrong.popitem(last=False)

    def _left_at(self, now: float) -> float:
        return min(float(self._budget.free), self._left + (now - self._at) / self._budget.seconds)


class _Records:
    """Records of many addresses or networks, those with the oldest guess first.

    One is forgotten only once its budget is full again, so that being forgotten gives nobody a guess. Few are not full:
    each of those had a guess that EVERYBODY paid for within ``refill_seconds``, or belongs to a known address.
    """

    def __init__(self, budget: Budget, remembered: int) -> None:
        self._budget = budget
        self._remembered = remembered
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> _Record | None:
        return self._records.get(key)

    def pay(self, key: str, attempt: bytes, now: float) -> None:
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(self._budget, now, self._remembered)
        record.pay(attempt, now)
        self._records.move_to_end(key)
        while len(self._records) > _RECORDS and next(iter(self._records.values())).is_full(now):
            self._records.popitem(last=False)


class Brake:
    """One for each password. ``attempt`` stands for the password tried, in a form that does not tell it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._everybody = _Record(EVERYBODY, clock(), _REMEMBERED)
        self._networks = _Records(NETWORK, 0)
        self._addresses = _Records(ADDRESS, _REMEMBERED_HERE)
        self._known: OrderedDict[str, None] = OrderedDict()

    def wait(self, address: str, attempt: bytes) -> float:
        """Seconds before this attempt may be looked at; 0: now. One found wrong lately may always be."""
        if self._is_wrong(address, attempt):
            return 0.0
        now = self._clock()
        own, network = _places(address)
        records = [self._addresses.get(own)]
        if own not in self._known:
            records += [self._networks.get(network), self._everybody]
        return max(record.wait(now) if record else 0.0 for record in records)

    def missed(self, address: str, attempt: bytes) -> None:
        """The attempt was wrong. ``wait`` has just said 0 for it."""
        own, network = _places(address)
        if self._is_wrong(address, attempt):
            record = (
                self._everybody if attempt in self._everybody.wrong else self._addresses.get(own)
            )
            assert record is not None
            record.remember(attempt)
            return
        now = self._clock()
        self._addresses.pay(own, attempt, now)
        if own not in self._known:
            self._networks.pay(network, attempt, now)
            self._everybody.pay(attempt, now)

    def passed(self, address: str) -> None:
        """The right password came from this address. The addresses that gave it last are known."""
        own, _ = _places(address)
        self._known[own] = None
        self._known.move_to_end(own)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    def _is_wrong(self, address: str, attempt: bytes) -> bool:
        if attempt in self._everybody.wrong:
            return True
        record = self._addresses.get(_places(address)[0])
        return record is not None and attempt in record.wrong


def _places(address: str) -> tuple[str, str]:
    """The address that counts for itself, and the network around it."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return (
            _UNKNOWN,
            _UNKNOWN,
        )  # whatever a proxy says it is: a name of one's own choice must give no budget
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return _network(ip, 64), _network(ip, 48)
        ip = ip.ipv4_mapped
    return str(ip), _network(ip, 24)


def _network(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> str:
    return str(ipaddress.ip_network((ip, bits), strict=False))
