"""Topics of an agent: named logs to which messages are published."""

from oplogc.topics.calls.consumers import ConsumerStatus, ListedConsumer, ShardStatus
from oplogc.topics.calls.lists import Lease, ListedPointer, Namespace
from oplogc.topics.calls.pointers import Entry, OpenPointer, Place, Published
from oplogc.topics.calls.topics import Isolation, Polled
from oplogc.topics.calls.transactions import Committed, TransactionStatus
from oplogc.topics.client import AsyncTopics
from oplogc.topics.consumer import TopicConsumer, TopicEvent
from oplogc.topics.foreign.pointers import AsyncPointers
from oplogc.topics.foreign.publisher import AsyncForeignPublisher
from oplogc.topics.foreign.threads import ForeignPublisher, Pointers
from oplogc.topics.messages.message import Message, ReceivedMessage
from oplogc.topics.messages.names import Topic, TopicName
from oplogc.topics.messages.snapshot import ForeignTransaction
from oplogc.topics.named.consumer import AsyncNamedConsumer, NamedConsumer
from oplogc.topics.named.reader import NamedEvent
from oplogc.topics.publish.queue import PublishCounters
from oplogc.topics.threads import Topics
from oplogc.topics.transactions.threads import Transaction
from oplogc.topics.transactions.transaction import AsyncTransaction
from oplogc.wire.errors import (
    AlreadyCommittedError,
    BadRequestError,
    BufferFullError,
    FlushError,
    MessageError,
    NotAllowed,
    OperationError,
    OplogError,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    StaleTermError,
    StateFileError,
    TopicAlreadyExists,
    TopicNotFound,
    TransactionError,
    UnavailableError,
)
from oplogc.wire.events import Reset

__all__ = [
    "AlreadyCommittedError",
    "AsyncForeignPublisher",
    "AsyncNamedConsumer",
    "AsyncPointers",
    "AsyncTopics",
    "AsyncTransaction",
    "BadRequestError",
    "BufferFullError",
    "Committed",
    "ConsumerStatus",
    "Entry",
    "FlushError",
    "ForeignPublisher",
    "ForeignTransaction",
    "Isolation",
    "Lease",
    "ListedConsumer",
    "ListedPointer",
    "Message",
    "MessageError",
    "NamedConsumer",
    "NamedEvent",
    "Namespace",
    "NotAllowed",
    "OpenPointer",
    "OperationError",
    "OplogError",
    "OutcomeUnknownError",
    "Place",
    "Pointers",
    "Polled",
    "ProtocolError",
    "PublishCounters",
    "Published",
    "ReceivedMessage",
    "RefusedError",
    "Reset",
    "ShardStatus",
    "StaleTermError",
    "StateFileError",
    "Topic",
    "TopicAlreadyExists",
    "TopicConsumer",
    "TopicEvent",
    "TopicName",
    "TopicNotFound",
    "Topics",
    "Transaction",
    "TransactionError",
    "TransactionStatus",
    "UnavailableError",
]
