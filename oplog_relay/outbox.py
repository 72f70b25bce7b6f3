"""Insert outbox rows within a transaction of the service.

outbox = OutboxWriter()
with Session(engine) as session, session.begin():
    session.add(order)
    outbox.operation(session, "insert", "order", "42")
    outbox.message(session, "orders", key="42", value={"total": 12})
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from oplog_relay.db.base import DatabaseUrl, encode_json
from oplog_relay.db.names import Names
from oplog_relay.db.schema import MAX_KEY, MAX_PAYLOAD, MAX_TOPIC
from oplog_relay.db.url import kinds
from oplog_relay.model.errors import RowError
from oplog_relay.model.settings import Table
from oplogc.topics.messages.names import topic_name
from oplogc.wire.errors import OperationError
from oplogc.wire.operation import encode

Headers = Mapping[str, str] | Iterable[tuple[str, str]]

_OPLOG = "oplog"
_COLUMNS = ("topic", "key", "value", "header_keys", "header_values")
_INSERT = (
    "INSERT INTO {table} ({create_time}, {topic}, {key}, {value}, {header_keys}, {header_values})"
    " VALUES ({now}, {parameters})"
)


class OutboxWriter:
    """Inserts rows into the outbox table. It never commits: the transaction is the caller's.

    The methods take a connection or cursor of sqlite3, psycopg or psycopg2, or a session or
    connection of SQLAlchemy. With SQLAlchemy's asyncio:
    ``await session.run_sync(outbox.message, "orders", key="42", value="…")``.
    Threads may share a writer.
    """

    def __init__(self, table: Table | None = None) -> None:
        """``table``: names other than the default. Raises ConfigError."""
        self._names = Names.of(table or Table())._asdict()

    def operation(
        self,
        connection: Any,
        event: str,
        type: str,
        id: str,
        parents: Sequence[str] = (),
        timestamp: datetime | str | None = None,
    ) -> None:
        """Insert an operation for the oplog. Operations of one object stay in order.

        ``event``: insert, update or delete. ``timestamp``: with a time zone; default: the time at
        which the operation arrives. Raises RowError.
        """
        try:
            value = encode(event, type, id, parents, timestamp).decode()
        except OperationError as error:
            raise RowError(error.field, error.reason) from None
        self._insert(connection, _OPLOG, _key(f"{type.lower()}/{id}"), value, ())

    def message(
        self,
        connection: Any,
        topic: str,
        *,
        key: str,
        value: str | Mapping[str, object] | list[object] | None,
        headers: Headers = (),
    ) -> None:
        """Insert a message for a topic. Messages of one key stay in order, over all topics.

        ``topic``: ``namespace/topic``, or a topic in the namespace ``default``. ``value``: text; a
        mapping or list becomes JSON; None is a message without payload. Raises RowError.
        """
        try:
            name = topic_name(topic)
        except ValueError as error:
            raise RowError("topic", str(error)) from None
        if topic == _OPLOG or str(name) == "system/oplog":
            raise RowError("topic", f"{topic!r} takes operations: call operation()")
        if isinstance(value, Mapping | list):
            value = _as_json(value)
        self._insert(connection, topic, key, value, _pairs(headers))

    def _insert(
        self,
        connection: Any,
        topic: str,
        key: str,
        value: str | None,
        headers: Sequence[tuple[str, str]],
    ) -> None:
        _check_text("topic", topic, MAX_TOPIC)
        _check_text("key", key, MAX_KEY)
        if not key:
            raise RowError("key", "must not be empty: rows of one key stay in order")
        if value is not None:
            _check_text("value", value)
            if (size := len(value.encode())) > MAX_PAYLOAD:
                raise RowError("value", f"has {size:,} bytes, more than {MAX_PAYLOAD:,}")
        for pair in headers:
            for text in pair:
                _check_text("headers", text)
        lists = [[name for name, _ in headers], [text for _, text in headers]]
        _execute(connection, self._names, [topic, key, value], lists)


def _execute(
    connection: Any, names: dict[str, str], scalars: list[object], lists: list[list[str]]
) -> None:
    connection = getattr(connection, "driver_connection", connection)  # SQLAlchemy's pool has it
    package = _package(connection)
    if package == "sqlalchemy":
        bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
        dialect = bind.dialect.name
        kind = next((each for each in kinds().values() if each.dialect == dialect), None)
        if kind is None:
            labels = " or ".join(each.label for each in kinds().values())
            raise TypeError(f"the outbox is in {labels}, not in {dialect}")
        sqlalchemy = sys.modules["sqlalchemy"]
        plain = {name: quoted.replace(":", "\\:") for name, quoted in names.items()}
        statement = _INSERT.format(
            **plain, now=kind.now, parameters=", ".join(f":{name}" for name in _COLUMNS)
        )
        values = [*scalars, *map(kind.stored_list, lists)]
        connection.execute(sqlalchemy.text(statement), dict(zip(_COLUMNS, values, strict=True)))
        return
    kind = _drivers()[package]
    parameter = kind.drivers[package]
    if parameter == "%s":
        names = {name: quoted.replace("%", "%%") for name, quoted in names.items()}
    statement = _INSERT.format(
        **names, now=kind.now, parameters=", ".join(parameter for _ in _COLUMNS)
    )
    # A cursor of its own: the caller's may still have rows to read.
    cursor = getattr(connection, "connection", connection).cursor()
    try:
        cursor.execute(statement, [*scalars, *map(kind.stored_list, lists)])
    finally:
        cursor.close()


def _package(connection: Any) -> str:
    """Return the package of a connection. Raises TypeError for other objects."""
    drivers = _drivers()
    for each in type(connection).__mro__:
        package = each.__module__.partition(".")[0]
        if package in drivers or (package == "sqlalchemy" and hasattr(connection, "execute")):
            if "async" in each.__name__.lower():
                raise TypeError(
                    f"{each.__name__} is asynchronous; with SQLAlchemy:"
                    " await session.run_sync(outbox.message, ...)"
                )
            return package
    *others, last = drivers
    raise TypeError(
        f"give a connection or cursor of {', '.join(others)} or {last}, or a session or connection"
        f" of SQLAlchemy, not {type(connection).__name__}"
    )


def _drivers() -> dict[str, type[DatabaseUrl]]:
    """Return the kind of database of each package of a driver."""
    return {package: each for each in kinds().values() for package in each.drivers}


def _key(text: str) -> str:
    """Return the key of an object: its name, or of a long one the beginning and a digest."""
    if len(text) <= MAX_KEY:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return f"{text[: MAX_KEY - 33]}-{digest}"


def _pairs(headers: Headers) -> list[tuple[str, str]]:
    given = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return [(name, text) for name, text in given]
    except (TypeError, ValueError):
        raise RowError("headers", "must be a mapping, or pairs of name and value") from None


def _as_json(value: object) -> str:
    try:
        return encode_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError("value", f"cannot become JSON: {error}") from None


def _check_text(field: str, text: object, longest: int | None = None) -> None:
    if not isinstance(text, str):
        raise RowError(field, f"must be a string, not {type(text).__name__}")
    if "\0" in text:
        raise RowError(field, "must not contain NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RowError(field, "contains an unpaired surrogate") from None
    if longest is not None and len(text) > longest:
        raise RowError(field, f"has {len(text):,} characters, more than {longest:,}")
