"""The parts of an agent for topics, composed."""

from oplogd.ingest.appends import Appends
from oplogd.store import Store
from oplogd.store.transactions import RecordLimits
from oplogd.stream.feeds import Feeds
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.oplog import OplogPoller
from oplogd.topics.pointers.service import PointerService
from oplogd.topics.poller import Poller
from oplogd.topics.publish import MessageQueue, MessageWriter, PublishService
from oplogd.topics.transactions.room import RecordRoom
from oplogd.topics.transactions.service import TransactionService
from oplogd.watch.bounded import Admit
from oplogd.watch.health import Health
from oplogd.watch.lease_counters import LeaseCounters


class TopicParts:
    """Starts no task: the agent runs ``writer``."""

    def __init__(
        self,
        store: Store,
        health: Health,
        *,
        max_queued: int,
        max_queued_bytes: int,
        queue_name: str,
        poll_limit: int,
        limits: RecordLimits,
        pointer_timeout: int,
        leases: LeaseCounters,
        counters: TopicCounters,
        feeds: Feeds,
        appends: Appends,
        admit: Admit,
    ) -> None:
        topics = store.topics
        room = RecordRoom(max_queued, max_queued_bytes, admit)
        followed = feeds.acknowledged, feeds.is_followed
        self.counters = counters
        self.known = known = KnownTopics(topics)
        self.queue = MessageQueue(max_queued, max_queued_bytes, "messages", admit, queue_name)
        self.writer = MessageWriter(topics, self.queue, health, feeds.acknowledged, appends)
        self.publisher = PublishService(known, self.queue, counters, leases)
        self.poller = Poller(topics, known, counters, poll_limit, feeds)
        self.oplog = OplogPoller(store, counters, poll_limit)
        self.transactions = TransactionService(
            store.transactions, topics, known, limits, *followed, room
        )
        self.pointers = PointerService(
            store.pointers,
            topics,
            known,
            counters,
            limits,
            pointer_timeout,
            room,
            *followed,
        )
