"""Topics of an agent: named logs to which messages are published."""

from oplogc.errors import (
    BadRequestError,
    BufferFullError,
    FlushError,
    MessageError,
    NotAllowed,
    OplogError,
    ProtocolError,
    RefusedError,
    StateFileError,
    TopicAlreadyExists,
    TopicNotFound,
    UnavailableError,
)
from oplogc.events import Reset
from oplogc.topics.calls import Polled
from oplogc.topics.client import AsyncTopics
from oplogc.topics.consumer import TopicConsumer, TopicEvent
from oplogc.topics.message import Message, ReceivedMessage
from oplogc.topics.names import Topic, TopicName
from oplogc.topics.queue import PublishCounters
from oplogc.topics.threads import Topics

__all__ = [
    "AsyncTopics",
    "BadRequestError",
    "BufferFullError",
    "FlushError",
    "Message",
    "MessageError",
    "NotAllowed",
    "OplogError",
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
    "UnavailableError",
]
