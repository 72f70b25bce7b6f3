"""Producers and consumers for an oplog agent."""

from oplogc.async_producer import AsyncProducer
from oplogc.consumer import Consumer
from oplogc.errors import (
    BufferFullError,
    FlushError,
    OperationError,
    OplogError,
    ProtocolError,
    RefusedError,
    StateFileError,
)
from oplogc.events import Event, Live, Operation, Reset
from oplogc.outbox import Counters, Overflow
from oplogc.producer import Producer

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
