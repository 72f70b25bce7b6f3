"""Why a term ends, and the shared parts of terms."""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from oplog_relay.leader.blocked import BlockedKeys
from oplog_relay.model.bindings import Outbox, Publisher
from oplog_relay.model.settings import Limits
from oplog_relay.model.state import Counters

# Seconds after a failure for requests in progress, the last purge and the reset.
GRACE_S = 1.0


class Cause(Enum):
    """Why a term has ended."""

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
