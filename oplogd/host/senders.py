"""Senders by their addresses, and a problem that each of them has in an episode of its own."""

import ipaddress
import logging
import time
from collections.abc import Callable
from ctypes import c_int64

from oplogd.host.logs import Episode

# Episodes of so many addresses are logged apart. Those of others that come meanwhile share one.
MAX_ADDRESSES = 100

# Stands for every address that is not an IP address.
_UNKNOWN = "unknown"

# Time between two looks for ended episodes.
_LOOK_SECONDS = 1.0


def units_of(address: str) -> tuple[str, str]:
    """Return the units an address counts for: the address (IPv6: its /64), and its network.

    All other strings are one unit: a proxy may claim any name, and a new name is no new sender.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return _UNKNOWN, _UNKNOWN
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return _network(ip, 64), _network(ip, 48)
        ip = ip.ipv4_mapped
    return str(ip), _network(ip, 24)


def _network(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> str:
    return str(ipaddress.ip_network((ip, bits), strict=False))


class SenderEpisodes:
    """Logs a problem once per address and episode.

    ``problem`` is continued by the address. ``quiet``: seconds without an occurrence that end the
    episode of an address. ``counted``: counts all occurrences. Call all methods from one thread.
    """

    def __init__(
        self,
        logger: logging.Logger,
        problem: str,
        *,
        quiet: float,
        clock: Callable[[], float] = time.monotonic,
        counted: c_int64 | None = None,
    ) -> None:
        self._counted = c_int64() if counted is None else counted
        self._logger = logger
        self._problem = problem
        self._quiet = quiet
        self._clock = clock
        self._looked_at = clock()
        self._others = self._episode("other addresses")
        self._episodes: dict[str, Episode] = {}

    @property
    def count(self) -> int:
        """The number of all occurrences."""
        return self._counted.value

    def occurred(self, address: str, detail: str, times: int = 1) -> None:
        """Count an occurrence. The first one of an address in an episode is logged."""
        self._counted.value += times
        self._forget_quiet()
        unit, _ = units_of(address)
        if unit not in self._episodes:
            if len(self._episodes) >= MAX_ADDRESSES:
                self._others.occurred(times, detail=f"such as {unit}: {detail}")
                return
            self._episodes[unit] = self._episode(unit)
        self._episodes[unit].occurred(times, detail=detail)

    def ended(self) -> None:
        """Log the end of episodes quiet for long enough. Call it after a success."""
        if self._episodes or self._others.active:
            self._forget_quiet()

    def _forget_quiet(self) -> None:
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        self._others.end()
        for unit, episode in list(self._episodes.items()):
            episode.end()
            if not episode.active:
                del self._episodes[unit]

    def _episode(self, address: str) -> Episode:
        problem = f"{self._problem} {address}"
        return Episode(self._logger, problem, quiet=self._quiet, clock=self._clock)
