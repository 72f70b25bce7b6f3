"""URLs of databases, as SQLAlchemy reads them. No I/O."""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from oplog_relay.model.errors import ConfigError

EXAMPLES = "sqlite:///app.db (relative), sqlite:////data/app.db or postgresql://user@host/database"
_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "sqlite+aiosqlite": "sqlite",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
    "postgresql+psycopg_async": "postgresql",
    "postgresql+psycopg2": "postgresql",
    "postgresql+asyncpg": "postgresql",
    "postgres": "postgresql",  # SQLAlchemy refuses this one, but hosting services hand it out
}
# As SQLAlchemy's: a user has no colon, a password no at sign unless they are percent-encoded.
_URL = re.compile(
    r"""
    (?P<driver>[\w+]+)://
    (?: (?P<user>[^:/@]*) (?: :(?P<password>[^@]*) )? @ )?
    (?: \[(?P<ipv6>[^]/?]+)\] | (?P<host>[^/:?]+) )?
    (?: :(?P<port>[^/?]*) )?
    (?: /(?P<database>[^?]*) )?
    (?: \?(?P<query>.*) )?
    """,
    re.VERBOSE,
)
# Names of asyncpg for parameters of libpq.
_OTHER_NAMES = {"ssl": "sslmode"}


class SqliteUrl(NamedTuple):
    """``file``: a path, or with ``is_uri`` a URI of SQLite. ``busy``: seconds, or None."""

    file: str
    is_uri: bool = False
    busy: float | None = None


class PostgresUrl(NamedTuple):
    """``parameters``: of libpq, such as ``host``, ``dbname`` and ``password``."""

    parameters: dict[str, str]

    def __repr__(self) -> str:
        return "PostgresUrl(...)"


def parse(url: str) -> SqliteUrl | PostgresUrl:
    """Read the URL of a database. Raises ConfigError, without the URL: it may hold a password."""
    found = _URL.fullmatch(url)
    if found is None:
        raise ConfigError(f"database.url: not a URL such as {EXAMPLES}")
    driver = found["driver"]
    if (kind := _DRIVERS.get(driver)) is None:
        raise ConfigError(f"database.url: {driver}:// is not supported; use {EXAMPLES}")
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(found["query"] or ""):
        query.setdefault(name, []).append(value)
    parts = {name: value for name, value in found.groupdict().items() if value is not None}
    return _sqlite(parts, query) if kind == "sqlite" else _postgres(parts, query)


def _sqlite(parts: dict[str, str], query: dict[str, list[str]]) -> SqliteUrl:
    if any(parts.get(name) for name in ("user", "password", "host", "ipv6", "port")):
        raise ConfigError(
            "database.url: a path of SQLite comes after three slashes, an absolute one after four:"
            " sqlite:///app.db, sqlite:////data/app.db"
        )
    file = unquote(parts.get("database", ""))
    is_uri = query.get("uri", ["false"])[-1].lower() in ("1", "true", "yes", "on", "y", "t")
    if not file or ":memory:" in file or query.get("mode", [""])[-1] == "memory":
        raise ConfigError("database.url: a database in memory has no other users; name a file")
    busy: float | None = None
    if "timeout" in query:
        try:
            busy = float(query["timeout"][-1])
        except ValueError:
            raise ConfigError("database.url: timeout must be a number of seconds") from None
    if is_uri:
        own = ("uri", "timeout", "isolation_level", "detect_types", "check_same_thread")
        rest = [f"{name}={value[-1]}" for name, value in query.items() if name not in own]
        file += f"?{'&'.join(rest)}" if rest else ""
    return SqliteUrl(file, is_uri, busy)


def _postgres(parts: dict[str, str], query: dict[str, list[str]]) -> PostgresUrl:
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
    return PostgresUrl(parameters)


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = text.partition(":")
    return host, port
