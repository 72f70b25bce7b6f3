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
from oplogc.topics.message import Message, ReceivedMessage
from oplogc.topics.names import Topic, TopicName
from oplogc.topics.queue import PublishCounters
from oplogc.topics.threads import Topics
from oplogc.topics.transactions.calls import Committed, TransactionStatus
from oplogc.topics.transactions.threads import Transaction
from oplogc.topics.transactions.transaction import AsyncTransaction

__all__ = [
    "AsyncTopics",
    "AsyncTransaction",
    "BadRequestError",
    "BufferFullError",
    "Committed",
    "FlushError",
    "Isolation",
    "Message",
    "MessageError",
    "NotAllowed",
    "OperationError",
    "OplogError",
    "OutcomeUnknownError",
    "Polled",
    "ProtocolError",
    "PublishCounters",
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
