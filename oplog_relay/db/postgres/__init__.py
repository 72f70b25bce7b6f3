"""PostgreSQL, through psycopg 3."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self
from urllib.parse import unquote

from oplog_relay.db.base import DatabaseOutbox, DatabaseUrl
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import Table

# Names of asyncpg for parameters of libpq.
_OTHER_NAMES = {"ssl": "sslmode"}


@dataclass(frozen=True)
class PostgresUrl(DatabaseUrl):
    """``parameters``: of libpq, such as ``host``, ``dbname`` and ``password``."""

    kind = "postgres"
    label = "PostgreSQL"
    dialect = "postgresql"
    schemes = (
        "postgresql",
        "postgresql+psycopg",
        "postgresql+psycopg_async",
        "postgresql+psycopg2",
        "postgresql+asyncpg",
        "postgres",  # SQLAlchemy refuses this one, but hosting services hand it out
    )
    examples = ("postgresql://user@host/database",)
    drivers: ClassVar = {"psycopg": "%s", "psycopg2": "%s"}
    schema = """\
CREATE TABLE {table} (
    {id} bigserial PRIMARY KEY,
    {create_time} timestamptz NOT NULL DEFAULT now(),
    {topic} varchar({max_topic}) NOT NULL,
    {key} varchar({max_key}) NOT NULL,
    {value} text,
    {header_keys} text[] NOT NULL DEFAULT '{{}}',
    {header_values} text[] NOT NULL DEFAULT '{{}}',
    {leader_id} uuid
) WITH (fillfactor = 50); -- room for the mark beside its row: the index does not grow
"""
    now = "CURRENT_TIMESTAMP"

    parameters: dict[str, str] = field(repr=False)

    @classmethod
    def read(cls, parts: Mapping[str, str], query: Mapping[str, list[str]]) -> Self:
        parameters = {_OTHER_NAMES.get(name, name): value[-1] for name, value in query.items()}
        for part, name in (("user", "user"), ("password", "password"), ("database", "dbname")):
            if parts.get(part):
                parameters[name] = unquote(parts[part])
        host = parts.get("host") or parts.get("ipv6")
        if host and "@" in host:
            raise ConfigError("database.url: write %40 for each @ in the user or password")
        if host:
            parameters["host"] = unquote(host)
        elif hosts := query.get("host"):
            # host=a:5432&host=b:5433 names several servers; a path is the folder of a Unix socket.
            pairs = [(each, "") if "/" in each else _host_and_port(each) for each in hosts]
            parameters["host"] = ",".join(each for each, _ in pairs)
            if any(port for _, port in pairs) or len(pairs) > 1:
                parameters["port"] = ",".join(port for _, port in pairs)
        if port := parts.get("port"):
            parameters["port"] = port
        for port in parameters.get("port", "").split(","):
            if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                # Not the text: without an at sign it may be the password.
                raise ConfigError("database.url: the port must be a number from 1 to 65535")
        return cls(parameters)

    def outbox(self, table: Table) -> DatabaseOutbox:
        from oplog_relay.db.postgres.outbox import PostgresOutbox

        return PostgresOutbox(self, table)

    def connect(self, patience: float, *, autocommit: bool) -> Any:
        import psycopg

        given: dict[str, Any] = {"client_encoding": "UTF8", "connect_timeout": round(patience)}
        connection = psycopg.connect(**{**given, **self.parameters}, autocommit=True)
        connection.execute(f"SET statement_timeout = {round(patience * 1000)}")
        connection.execute("SET TimeZone = 'UTC'")
        connection.autocommit = autocommit
        return connection

    @classmethod
    def stored_list(cls, strings: Sequence[str]) -> object:
        return strings

    @classmethod
    def batch(cls, connection: Any) -> AbstractContextManager[Any]:
        pipeline: AbstractContextManager[Any] = connection.pipeline()
        return pipeline


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = text.partition(":")
    return host, port
