"""Counts of operations by their result."""

from dataclasses import dataclass, field

from oplogd.watch.histogram import Histogram


@dataclass
class IngestCounters:
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
    # Received with unknown members.
    ignoring: int = 0
    # Put into the spool by this process.
    spooled: int = 0
    # Found in the file of the spool: an earlier process received them.
    recovered: int = 0
    # In the spool and not yet in the log.
    in_spool: int = 0
    # Durations of successful appends to the store.
    commit_seconds: Histogram = field(default_factory=Histogram, compare=False)
