"""Every setting of the file: its name, kind, range and meaning. No I/O.

The reference of the settings is generated from these tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oplog_kit.config.fields import Field, Kind, tls_fields
from oplog_kit.listen import listen_address
from oplog_relay.db import names
from oplog_relay.model.settings import RelaySettings
from oplogc.http.address import base_endpoint
from oplogc.topics.messages.names import namespace_name


def _group(name: str) -> None:
    try:
        namespace_name(name)
    except ValueError:
        raise ValueError(
            f"{name!r} must be 1 to 249 ASCII letters, digits, '.', '_' or '-', and not '.' or '..'"
        ) from None


def _agent(url: str) -> None:
    base_endpoint(url, None)


def _duration(name: str, least: float, most: float, meaning: str) -> Field:
    return Field(name, Kind.DURATION, meaning, least, most)


def _count(name: str, least: int, most: int, meaning: str) -> Field:
    return Field(name, Kind.COUNT, meaning, least, most)


RELAY = (
    Field(
        "name",
        Kind.TEXT,
        "Name of the leader group and of its lease: 1 to 249 ASCII letters, digits, `.`, `_` or "
        "`-`. Relays of one name share the work of one outbox; one of them leads. Without it: the "
        "name of the executable that embeds the relay.",
        check=_group,
    ),
    Field("agents", Kind.SECTION, "Agents, or the list of their addresses."),
    Field("database", Kind.SECTION, "Database with the outbox."),
    Field("limits", Kind.SECTION, "Times and bounds."),
    Field(
        "metrics_listen",
        Kind.TEXT,
        "Address for Prometheus, such as `localhost:9108`; an empty host is all interfaces.",
        check=listen_address,
    ),
)
AGENTS = (
    Field(
        "urls",
        Kind.URLS,
        "Addresses of agents on one store. `agents` may be this list itself.",
        check=_agent,
    ),
    Field(
        "password",
        Kind.SECRET,
        "Password for sending, the agents' `--ingest-password`. Variable: `OPLOG_RELAY_PASSWORD`.",
        variable="OPLOG_RELAY_PASSWORD",
    ),
    *tls_fields("this relay"),
)
DATABASE = (
    Field(
        "url",
        Kind.URL,
        "Database with the outbox, as SQLAlchemy reads it: `sqlite:///app.db` or "
        "`postgresql://user@host/db`. Variable: `OPLOG_RELAY_DATABASE_URL`.",
        required="give the database of the outbox",
        variable="OPLOG_RELAY_DATABASE_URL",
    ),
    Field(
        "password",
        Kind.SECRET,
        "Password of the user in the URL. Variable: `OPLOG_RELAY_DATABASE_PASSWORD`.",
        variable="OPLOG_RELAY_DATABASE_PASSWORD",
    ),
    Field(
        "table",
        Kind.TEXT,
        "Name of the outbox table, or `schema.table`.",
        check=names.check_table,
    ),
    Field("columns", Kind.SECTION, "Names of the columns."),
)
COLUMNS = tuple(
    Field(name, Kind.TEXT, f"Name of the column `{name}`.", check=names.check_column)
    for name in names.COLUMNS
)
LIMITS = (
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
        "blocked_backoff",
        Kind.DURATIONS,
        "First and longest pause before a refused row is tried again.",
        0.01,
        3600,
    ),
    _duration("drain", 0, 3600, "Time for the rows in flight when the relay stops."),
    _duration("meter", 0.1, 3600, "Interval of the figures in the log and of `MeterRead`."),
)


def sections(settings: RelaySettings) -> Iterator[tuple[str, Sequence[Field], Mapping[str, Any]]]:
    """Yield the prefix of the paths, the table and the values of each mapping of the file.

    The password of the database is in its URL.
    """
    database = settings.database
    yield "", RELAY, vars(settings)
    yield "agents.", AGENTS, vars(settings.agents)
    yield "database.", DATABASE, {"url": database.url, "table": database.table.name}
    yield "database.columns.", COLUMNS, vars(database.table)
    yield "limits.", LIMITS, vars(settings.limits)
