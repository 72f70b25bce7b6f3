"""Every setting of the file: its path, kind, range and meaning. No I/O.

The reference of the settings is generated from this table.
"""

from enum import Enum, auto
from typing import Any, NamedTuple

from oplog_kit.units import duration_text
from oplog_relay.model.settings import RelaySettings


class Kind(Enum):
    TEXT = auto()
    # A text that no message and no output may show.
    SECRET = auto()
    # A file that holds the secret of the setting without ``_file``.
    SECRET_FILE = auto()
    # A list of texts.
    TEXTS = auto()
    COUNT = auto()
    DURATION = auto()
    # A list of two durations.
    DURATIONS = auto()


class Field(NamedTuple):
    """``least``, ``most``: of a count, or of a duration in seconds; both are allowed.

    ``attribute``: path of the value in RelaySettings if it is not ``path``; empty: it has none.
    """

    path: str
    kind: Kind
    meaning: str
    least: float = 0
    most: float = 0
    attribute: str | None = None

    @property
    def is_effective(self) -> bool:
        """Return whether the settings hold it, and not only the file."""
        return self.attribute != ""

    def value_in(self, settings: RelaySettings) -> Any:
        value: Any = settings
        for name in (self.attribute or self.path).split("."):
            value = getattr(value, name)
        return value


def _duration(name: str, least: float, most: float, meaning: str) -> Field:
    return Field(f"limits.{name}", Kind.DURATION, meaning, least, most)


def _count(name: str, least: int, most: int, meaning: str) -> Field:
    return Field(f"limits.{name}", Kind.COUNT, meaning, least, most)


def _column(name: str) -> Field:
    meaning = f"Name of the column `{name}`."
    return Field(f"database.columns.{name}", Kind.TEXT, meaning, 0, 0, f"database.table.{name}")


FIELDS = (
    Field(
        "name",
        Kind.TEXT,
        "Name of the leader group and of its lease: 1 to 249 ASCII letters, digits, `.`, `_` or "
        "`-`. Relays of one name share the work of one outbox; one of them leads. Without it: the "
        "name of the executable that embeds the relay.",
    ),
    Field(
        "agents.urls",
        Kind.TEXTS,
        "Addresses of agents on one store. `agents` may be this list itself.",
    ),
    Field(
        "agents.password",
        Kind.SECRET,
        "Password for sending, the agents' `--ingest-password`. Variable: `OPLOG_RELAY_PASSWORD`.",
    ),
    Field(
        "agents.password_file",
        Kind.SECRET_FILE,
        "File that holds the password. Excludes `password`.",
        attribute="",
    ),
    Field(
        "agents.ca_file",
        Kind.TEXT,
        "Certificates of the authorities to trust, in PEM. Without it: those of `SSL_CERT_FILE` or "
        "the usual ones.",
    ),
    Field("agents.cert_file", Kind.TEXT, "Certificate of this relay, in PEM."),
    Field(
        "agents.key_file",
        Kind.TEXT,
        "Private key of `cert_file`, in PEM, without a pass phrase. Without it: in `cert_file`.",
    ),
    Field(
        "database.url",
        Kind.SECRET,
        "Database with the outbox, as SQLAlchemy reads it: `sqlite:///app.db` or "
        "`postgresql://user@host/db`. Variable: `OPLOG_RELAY_DATABASE_URL`.",
    ),
    Field(
        "database.url_file",
        Kind.SECRET_FILE,
        "File that holds the URL. Excludes `url`.",
        attribute="",
    ),
    Field(
        "database.password",
        Kind.SECRET,
        "Password of the user in the URL. Variable: `OPLOG_RELAY_DATABASE_PASSWORD`.",
        attribute="",
    ),
    Field(
        "database.password_file",
        Kind.SECRET_FILE,
        "File that holds this password. Excludes `password`.",
        attribute="",
    ),
    Field(
        "database.table",
        Kind.TEXT,
        "Name of the outbox table, or `schema.table`.",
        attribute="database.table.name",
    ),
    *map(
        _column,
        (
            "id",
            "create_time",
            "topic",
            "key",
            "value",
            "header_keys",
            "header_values",
            "leader_id",
        ),
    ),
    _duration("poll", 0.01, 60, "Pause between two polls of the lease. The poll is the heartbeat."),
    _duration(
        "heartbeat",
        0.1,
        3000,
        "A leader without a successful poll for this time sends nothing any more. Must exceed "
        "`poll`.",
    ),
    _duration(
        "session",
        0.2,
        3600,
        "Time to live of the lease: another relay leads after it. Must exceed `heartbeat` by a "
        "tenth or more.",
    ),
    _count("in_flight", 1, 100_000, "Rows that are marked and not yet purged."),
    _count("mark", 1, 10_000, "Rows of one mark. At most `in_flight`."),
    _count("batch", 1, 100, "Rows of one request."),
    _count("shards", 1, 64, "Requests at a time."),
    _duration("mark_backoff", 0.001, 60, "Pause after a mark that found no row."),
    _duration("io_error_backoff", 0.01, 30, "Pause after a failure of the database or an agent."),
    _duration("request_timeout", 0.1, 300, "Time for a request to an agent."),
    _duration(
        "queue_timeout",
        0.2,
        3600,
        "A row that is in flight for longer makes the leader take a new term and mark everything "
        "anew. Must exceed `request_timeout`.",
    ),
    Field(
        "limits.blocked_backoff",
        Kind.DURATIONS,
        "First and longest pause before a refused row is tried again.",
        0.01,
        3600,
    ),
    _duration("drain", 0, 3600, "Time for the rows in flight when the relay stops."),
    _duration("meter", 0.1, 3600, "Interval of the figures in the log and of `MeterRead`."),
    Field(
        "metrics_listen",
        Kind.TEXT,
        "Address for Prometheus, such as `localhost:9108`; an empty host is all interfaces.",
    ),
)
BY_PATH = {field.path: field for field in FIELDS}


def range_text(field: Field) -> str:
    """Return the range of a count or duration, such as ``1 to 100``; empty for other kinds."""
    if field.kind is Kind.COUNT:
        return f"{field.least:,} to {field.most:,}"
    if field.kind in (Kind.DURATION, Kind.DURATIONS):
        return f"{duration_text(field.least)} to {duration_text(field.most)}"
    return ""
