"""The end of a term, and the shared parts of terms."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple

from oplog_relay.leader.blocked import BlockedKeys
from oplog_relay.model.bindings import Outbox, Publisher
from oplog_relay.model.settings import Limits
from oplog_relay.model.state import Counters

# Seconds after a failure for requests in progress, the last purge and the reset.
GRACE_S = 1.0


class Cause(Enum):
    STOPPED = auto()
    FENCED = auto()
    # A request may or may not have been carried out.
    UNCERTAIN = auto()


class End(NamedTuple):
    """``retry_after``: seconds the agent has asked for."""

    cause: Cause
    reason: str = ""
    retry_after: float = 0.0


class Tools(NamedTuple):
    """The shared parts of all terms. ``clock``: seconds, also while the machine sleeps."""

    limits: Limits
    outbox: Outbox
    publisher: Publisher
    blocked: BlockedKeys
    counters: Counters
    clock: Callable[[], float]


async def wait(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, at most this long. None: without a bound."""
    if seconds is None or seconds > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
