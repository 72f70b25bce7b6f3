"""oplog-relay: moves the rows of a service's outbox into topics and the oplog, in order per key."""

from oplog_relay.model.bindings import (
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
from oplog_relay.model.errors import (
    ConfigError,
    LeaseUnavailableError,
    OutboxError,
    RelayError,
    RowError,
)
from oplog_relay.model.events import (
    Event,
    Handler,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
)
from oplog_relay.model.row import Row
from oplog_relay.model.settings import (
    AgentSettings,
    DatabaseSettings,
    Limits,
    RelaySettings,
    Table,
)
from oplog_relay.model.state import Blocked, Counters, State
from oplog_relay.relay import Relay

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
