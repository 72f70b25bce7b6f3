"""The parts of an agent that serve topics, composed."""

from oplogd.ingest.appends import Appends
from oplogd.store import Store
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.oplog import OplogPoller
from oplogd.topics.poller import Peek, Poller
from oplogd.topics.publish import MessageQueue, Publisher
from oplogd.topics.writer import Acknowledged, MessageWriter, without_rings
from oplogd.watch.bounded import Admit, admit_all
from oplogd.watch.health import Health
from oplogd.watch.lease_counters import LeaseCounters


class TopicParts:
    """Starts no task: the agent runs ``writer``.

    ``peek``: see ``Poller``. ``acknowledged`` gets the last entry of each append and each poll.
    """

    def __init__(
        self,
        store: Store,
        health: Health,
        *,
        max_queued: int,
        max_queued_bytes: int,
        poll_limit: int,
        leases: LeaseCounters,
        peek: Peek | None = None,
        acknowledged: Acknowledged = without_rings,
        appends: Appends | None = None,
        admit: Admit = admit_all,
    ) -> None:
        topics = store.topics
        self.counters = TopicCounters()
        self.known = KnownTopics(topics)
        self.queue = MessageQueue(max_queued, max_queued_bytes, "messages", admit)
        self.writer = MessageWriter(topics, self.queue, health, acknowledged, appends)
        self.publisher = Publisher(self.known, self.queue, self.counters, leases)
        self.poller = Poller(topics, self.known, self.counters, poll_limit, peek, acknowledged)
        self.oplog = OplogPoller(store, self.counters, poll_limit)
