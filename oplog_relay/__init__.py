"""oplog-relay: moves the rows of a service's outbox into topics and the oplog, in order per key."""

from oplog_relay.bindings import (
    Backlog,
    Bindings,
    CheckedOutbox,
    LeaseClient,
    LeaseState,
    MeasurableOutbox,
    Outbox,
    Outcome,
    Publisher,
    Purged,
    Verdict,
)
from oplog_relay.errors import ConfigError, LeaseUnavailableError, OutboxError, RelayError, RowError
from oplog_relay.events import (
    Event,
    Handler,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
)
from oplog_relay.relay import Relay
from oplog_relay.row import Row
from oplog_relay.settings import AgentSettings, DatabaseSettings, Limits, RelaySettings, Table
from oplog_relay.state import Blocked, Counters, State

__all__ = [
    "AgentSettings",
    "Backlog",
    "Bindings",
    "Blocked",
    "CheckedOutbox",
    "ConfigError",
    "Counters",
    "DatabaseSettings",
    "Event",
    "Handler",
    "LeaderAcquired",
    "LeaderFenced",
    "LeaderRefreshed",
    "LeaderRevoked",
    "LeaseClient",
    "LeaseState",
    "LeaseUnavailableError",
    "Limits",
    "MeasurableOutbox",
    "MeterRead",
    "Outbox",
    "OutboxError",
    "Outcome",
    "Publisher",
    "Purged",
    "Relay",
    "RelayError",
    "RelaySettings",
    "Row",
    "RowError",
    "State",
    "Table",
    "Verdict",
]
