"""Members of operations without a meaning: senders learn of them."""

import logging
import re
from collections.abc import Collection, Mapping

from oplogd.clock import SYSTEM, Clock
from oplogd.decode.buffers import Text
from oplogd.host.senders import SenderEpisodes
from oplogd.ingest.counters import IngestCounters
from oplogd.model.operation import unknown_members

# Most names reported for one request, or for the datagrams of a sender read together.
MAX_NAMES = 8

# Unknown members looked at for these names. Further operations are only counted, not decoded again.
MAX_LOOKS = 1_000

# A producer that sends now and then has one line.
QUIET_SECONDS = 600.0

# Stands for all other names.
_ANY = "?"
_SHOWN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)

logger = logging.getLogger("oplogd.ignored")


class Ignored:
    """The unknown members of some operations. ``operations``: the number with any."""

    def __init__(self) -> None:
        self.operations = 0
        self._names: dict[str, None] = {}
        self._looks_left = MAX_LOOKS

    @property
    def names(self) -> Collection[str]:
        """Return at most MAX_NAMES names of the first MAX_LOOKS members; ``?``: any other."""
        return self._names

    def add(self, raw: Text) -> None:
        """Take an operation with unknown members, as ``decode`` hands it."""
        self.operations += 1
        if not self._looks_left:
            return
        for name in unknown_members(raw)[: self._looks_left]:
            self._looks_left -= 1
            self._names[name if _SHOWN_NAME.fullmatch(name) else _ANY] = None
            if len(self._names) == MAX_NAMES:
                self._looks_left = 0
                return


class IgnoredMembers:
    """Counts operations with unknown members, and logs their senders once per episode."""

    def __init__(self, counters: IngestCounters, clock: Clock = SYSTEM) -> None:
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
            self._counters.ignoring += ignored.operations
            self._senders.occurred(address, ", ".join(ignored.names), ignored.operations)
