"""Counts of operations by their fate."""

from dataclasses import dataclass, field

from oplogd.histogram import Histogram


@dataclass
class Counters:
    """Always ``received + recovered = ingested + error + discarded + in_spool +`` what the queue holds."""

    received: int = 0
    ingested: int = 0
    """In the log."""
    error: int = 0
    discarded: int = 0
    spooled: int = 0
    """Put into the spool, since the start."""
    recovered: int = 0
    """Found in the spool's file: an earlier process received them."""
    in_spool: int = 0
    """In the spool and not in the log yet."""
    commit_seconds: Histogram = field(default_factory=Histogram, compare=False)
    """What successful appends to the store took."""
