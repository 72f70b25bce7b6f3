"""All counters of one worker, in memory that outlives it."""

from oplogd.ingest.counters import DatagramCounters, IngestCounters
from oplogd.shared.tally import Tally, tally
from oplogd.store.transactions import Decisions
from oplogd.stream.phases.phase import StreamCounters
from oplogd.stream.refused import RefusedConsumers
from oplogd.topics.counters import Counts
from oplogd.watch.histogram import Histogram
from oplogd.watch.lease_counters import LeaseTally
from oplogd.watch.turns import LoopTally


@tally
class RefusedBodies(Tally):
    """Requests refused for their body or their other parameters, by reason.

    ``no_room``: --max-upload-memory was used up.
    """

    invalid: int
    too_large: int
    type: int
    no_room: int


@tally
class RefusedRequests(Tally):
    """``read`` and ``write``: requests refused for their password.

    ``connections``: closed at once because few descriptors were free.
    """

    read: int
    write: int
    connections: int
    bodies: RefusedBodies


@tally
class Tallies(Tally):
    """The counters of a worker. None decreases while its successors continue them.

    ``write_waits``: for the turn to write to a file that several workers share.
    """

    ingest: IngestCounters
    datagrams: DatagramCounters
    streams: StreamCounters
    consumers_refused: RefusedConsumers
    topics: Counts
    transactions: Decisions
    pointers: Decisions
    leases: LeaseTally
    requests_refused: RefusedRequests
    latency: Histogram
    write_waits: Histogram
    loop: LoopTally
