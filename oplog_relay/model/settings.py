"""The settings of a relay, as frozen values. ``config`` reads them from a file."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """Times are seconds. Meanings and ranges: ``oplog_relay.config.tables``.

    ``mark_backoff`` is also the least time from one mark to the next unless it was full, and
    ``queue_timeout`` the time for an answer of the database.
    """

    poll: float = 0.1
    heartbeat: float = 5.0
    session: float = 10.0
    in_flight: int = 1000
    mark: int = 100
    batch: int = 100
    shards: int = 4
    mark_backoff: float = 0.01
    io_error_backoff: float = 0.5
    request_timeout: float = 10.0
    queue_timeout: float = 30.0
    blocked_backoff: tuple[float, float] = (0.5, 30.0)
    drain: float = 30.0
    meter: float = 5.0


@dataclass(frozen=True)
class Table:
    """Names in the database. ``name`` may be ``schema.table``."""

    name: str = "outbox"
    id: str = "id"
    create_time: str = "create_time"
    topic: str = "topic"
    key: str = "key"
    value: str = "value"
    header_keys: str = "header_keys"
    header_values: str = "header_values"
    leader_id: str = "leader_id"


@dataclass(frozen=True)
class DatabaseSettings:
    """``url``: as SQLAlchemy reads it, ``sqlite:///app.db`` or ``postgresql://user@host/db``."""

    url: str = field(repr=False)
    table: Table = Table()


@dataclass(frozen=True)
class AgentSettings:
    """``urls``: of agents on one store. ``ca_file``, ``cert_file``, ``key_file``: PEM, for TLS."""

    urls: tuple[str, ...] = field(default=("http://localhost:8042",), repr=False)
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class RelaySettings:
    """``name``: of the leader group and its lease. ``metrics_listen``: None: off."""

    name: str
    database: DatabaseSettings
    agents: AgentSettings = AgentSettings()
    limits: Limits = Limits()
    metrics_listen: str | None = None
