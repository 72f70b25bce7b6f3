"""Why a term ends, and the parts that terms share."""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from oplog_relay.leader.blocked import BlockedKeys
from oplog_relay.model.bindings import Outbox, Publisher
from oplog_relay.model.settings import Limits
from oplog_relay.model.state import Counters

# Seconds that requests in progress get after a failure, and the last purge and the reset.
GRACE_S = 1.0


class Cause(Enum):
    """Why a term has ended."""

    STOPPED = auto()
    FENCED = auto()
    # A request may or may not have been carried out.
    UNCERTAIN = auto()


class End(NamedTuple):
    """``retry_after``: seconds that the agent has asked for."""

    cause: Cause
    reason: str = ""
    retry_after: float = 0.0


class Tools(NamedTuple):
    """Parts that all terms of a relay share. ``clock``: seconds, runs while the machine sleeps."""

    limits: Limits
    outbox: Outbox
    publisher: Publisher
    blocked: BlockedKeys
    counters: Counters
    clock: Callable[[], float]
