"""Producers and consumers for an oplog agent."""

from oplogc.follow.consumer import Consumer
from oplogc.producers.async_producer import AsyncProducer
from oplogc.producers.outbox import Counters, Overflow
from oplogc.producers.producer import Producer
from oplogc.wire.errors import (
    BufferFullError,
    FlushError,
    OperationError,
    OplogError,
    ProtocolError,
    RefusedError,
    StateFileError,
)
from oplogc.wire.events import Event, Live, Operation, Reset

__version__ = "0.1.0"

__all__ = [
    "AsyncProducer",
    "BufferFullError",
    "Consumer",
    "Counters",
    "Event",
    "FlushError",
    "Live",
    "Operation",
    "OperationError",
    "OplogError",
    "Overflow",
    "Producer",
    "ProtocolError",
    "RefusedError",
    "Reset",
    "StateFileError",
]
