"""Topics of an agent: named logs to which messages are published."""

from oplogc.errors import (
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
    StateFileError,
    TopicAlreadyExists,
    TopicNotFound,
    TransactionError,
    UnavailableError,
)
from oplogc.events import Reset
from oplogc.topics.calls import Isolation, Polled
from oplogc.topics.client import AsyncTopics
from oplogc.topics.consumer import TopicConsumer, TopicEvent
from oplogc.topics.foreign.calls import Entry, OpenPointer, Place, Published
from oplogc.topics.foreign.pointers import AsyncPointers
from oplogc.topics.foreign.publisher import AsyncForeignPublisher
from oplogc.topics.foreign.threads import ForeignPublisher, Pointers
from oplogc.topics.foreign.transaction import ForeignTransaction
from oplogc.topics.lists import Lease, ListedPointer, Namespace
from oplogc.topics.message import Message, ReceivedMessage
from oplogc.topics.names import Topic, TopicName
from oplogc.topics.queue import PublishCounters
from oplogc.topics.threads import Topics
from oplogc.topics.transactions.calls import Committed, TransactionStatus
from oplogc.topics.transactions.threads import Transaction
from oplogc.topics.transactions.transaction import AsyncTransaction

__all__ = [
    "AsyncForeignPublisher",
    "AsyncPointers",
    "AsyncTopics",
    "AsyncTransaction",
    "BadRequestError",
    "BufferFullError",
    "Committed",
    "Entry",
    "FlushError",
    "ForeignPublisher",
    "ForeignTransaction",
    "Isolation",
    "Lease",
    "ListedPointer",
    "Message",
    "MessageError",
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
