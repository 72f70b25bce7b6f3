"""Counts of operations by their result."""

from oplogd.shared.tally import Tally, tally
from oplogd.watch.histogram import Histogram


@tally
class IngestCounters(Tally):
    """Counts operations since the start of the agent.

    ``received + recovered = ingested + error + discarded + stale + in_spool + operations in the
    queues`` holds at any time.
    """

    received: int
    # In the log.
    ingested: int
    # Refused as invalid.
    error: int
    # Lost or refused: the queue or the spool was full, or the store was unreachable.
    discarded: int
    # Refused because the term of their lease was over.
    stale: int
    # Received with unknown members.
    ignoring: int
    # Put into the spool.
    spooled: int
    # Found in the file of the spool: an earlier agent received them.
    recovered: int
    # In the spool and not yet in the log.
    in_spool: int
    # Durations of successful appends to the store.
    commit_seconds: Histogram

    @property
    def in_queues(self) -> int:
        """The number of operations in the queues, by the sum above."""
        done = self.ingested + self.error + self.discarded + self.stale + self.in_spool
        return self.received + self.recovered - done


@tally
class DatagramCounters(Tally):
    """``refused``: invalid datagrams. ``dropped``: by the kernel, when it was last asked."""

    refused: int
    dropped: int
