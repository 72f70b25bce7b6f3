"""Members of operations that nobody reads: senders are told of them."""

import logging
import re
from collections.abc import Collection, Mapping

from oplogd.clock import SYSTEM, Clock
from oplogd.ingest.counters import Counters
from oplogd.operation import Text, unknown_members
from oplogd.senders import SenderEpisodes

# Most names that are told for one request, or for the datagrams of a sender that are read together.
MAX_NAMES = 8

# A producer that sends now and then has one line.
QUIET_SECONDS = 600.0

# Stands for all other names.
_ANY = "?"
_TOLD = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)

logger = logging.getLogger("oplogd.ignored")


class Ignored:
    """The unknown members of some operations. ``operations``: the number that had any."""

    def __init__(self) -> None:
        self.operations = 0
        self._names: dict[str, None] = {}

    @property
    def names(self) -> Collection[str]:
        """Return at most MAX_NAMES names, in the order in which they came. ``?``: any other."""
        return self._names

    def add(self, raw: Text) -> None:
        """Take an operation that has unknown members, as ``decode`` hands it."""
        self.operations += 1
        if len(self._names) < MAX_NAMES:
            for name in unknown_members(raw):
                self._names[name if _TOLD.fullmatch(name) else _ANY] = None
                if len(self._names) == MAX_NAMES:
                    break


class IgnoredMembers:
    """Counts operations that had unknown members, and logs their senders once per episode."""

    def __init__(self, counters: Counters, clock: Clock = SYSTEM) -> None:
        self._counters = counters
        self._senders = SenderEpisodes(
            logger,
            "ignoring unknown members of operations from",
            quiet=QUIET_SECONDS,
            clock=clock.monotonic,
        )

    def by_sender(self, found: Mapping[str, Ignored]) -> None:
        """Take the unknown members that came together, by the IP address of their sender."""
        if not found:
            self._senders.ended()
        for address, ignored in found.items():
            self._counters.add_ignoring(ignored.operations)
            self._senders.occurred(address, ", ".join(ignored.names), ignored.operations)
