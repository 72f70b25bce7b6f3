"""Slows the guessing of a password. No I/O.

What counts is how many different wrong passwords come from an address, not how many requests: a consumer that was set up
with a wrong one asks again and again, and must not lock out others on its machine.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

GUESSES = 10
"""Different wrong passwords that an address has free."""

REFILL_SECONDS = 10.0
"""Then one more each so many seconds: 8,640 a day."""

_REMEMBERED = 16
_ADDRESSES = 4_096


class _Record:
    __slots__ = ("at", "left", "wrong")

    def __init__(self, now: float) -> None:
        self.left = float(GUESSES)
        self.at = now
        self.wrong: OrderedDict[bytes, None] = OrderedDict()

    def refill(self, now: float) -> None:
        self.left = min(float(GUESSES), self.left + (now - self.at) / REFILL_SECONDS)
        self.at = now


class Brake:
    """One for each password. ``attempt`` stands for the password tried, in a form that does not tell it.

    Of very many addresses those that were longest without a guess are forgotten.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def wait(self, address: str, attempt: bytes) -> float:
        """Seconds before this attempt may be looked at; 0: now. One known to be wrong may always be."""
        record = self._records.get(_network(address))
        if record is None or attempt in record.wrong:
            return 0.0
        record.refill(self._clock())
        return 0.0 if record.left >= 1 else (1 - record.left) * REFILL_SECONDS

    def missed(self, address: str, attempt: bytes) -> None:
        """The attempt was wrong."""
        network, now = _network(address), self._clock()
        record = self._records.setdefault(network, _Record(now))
        self._records.move_to_end(network)
        if len(self._records) > _ADDRESSES:
            self._records.popitem(last=False)
        if attempt not in record.wrong:
            record.refill(now)
            record.left -= 1
            record.wrong[attempt] = None
        record.wrong.move_to_end(attempt)
        if len(record.wrong) > _REMEMBERED:
            record.wrong.popitem(last=False)


def _network(address: str) -> str:
    """What one guesser has: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network((ip, 64), strict=False))
