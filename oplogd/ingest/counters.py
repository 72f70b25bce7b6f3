"""Counts of operations by their result."""

from dataclasses import dataclass, field

from oplogd.watch.histogram import Histogram


@dataclass
class Counters:
    """Counts operations since the start.

    ``received + recovered = ingested + error + discarded + stale + in_spool + operations in the
    queues`` holds at any time.
    """

    received: int = 0
    # In the log.
    ingested: int = 0
    # Refused as invalid.
    error: int = 0
    # Lost or refused: the queue or the spool was full, or the store was unreachable.
    discarded: int = 0
    # Refused because the term of their lease was over.
    stale: int = 0
    # Received with members that operations do not have.
    ignoring: int = 0
    # Put into the spool by this process.
    spooled: int = 0
    # Found in the file of the spool: an earlier process received them.
    recovered: int = 0
    # In the spool and not yet in the log.
    in_spool: int = 0
    # Durations of successful appends to the store.
    commit_seconds: Histogram = field(default_factory=Histogram, compare=False)

    def add_received(self, count: int) -> None:
        """Count valid operations as they arrive."""
        self.received += count

    def add_invalid(self, count: int) -> None:
        """Count invalid operations, which were not counted as received before."""
        self.received += count
        self.error += count

    def add_ignoring(self, count: int) -> None:
        """Count received operations with unknown members, which were ignored."""
        self.ignoring += count

    def add_discarded(self, count: int) -> None:
        """Count received operations that reached neither the log nor the spool."""
        self.discarded += count

    def add_stale(self, count: int) -> None:
        """Count received operations whose fence did not hold."""
        self.stale += count

    def add_ingested(self, count: int) -> None:
        """Count operations from the queue appended to the log."""
        self.ingested += count

    def add_spooled(self, count: int) -> None:
        """Count operations that moved from the queue to the spool."""
        self.spooled += count
        self.in_spool += count

    def add_ingested_from_spool(self, count: int) -> None:
        """Count operations that moved from the spool to the log."""
        self.ingested += count
        self.in_spool -= count

    def add_recovered(self, count: int) -> None:
        """Count operations of an earlier process, found in the spool."""
        self.recovered += count
        self.in_spool += count

    def add_lost_from_spool(self, count: int) -> None:
        """Count operations that the spool should hold and does not."""
        self.discarded += count
        self.in_spool -= count
