"""A connection to PostgreSQL that is made when it is needed, and the meaning of its errors."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
import psycopg.conninfo

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.reasons import of_sql
from oplog_pipe.sinks.options import PostgresOptions
from oplog_pipe.sinks.postgres.cut import cut_after

Connection = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")

_PARAMETERS = {
    "client_encoding": "UTF8",  # a database with the encoding SQL_ASCII would return bytes
    "connect_timeout": "5",
    "fallback_application_name": "oplog-pipe",
    "keepalives_count": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "tcp_user_timeout": "10000",
}
# Classes and codes of SQLSTATE that pass by themselves: connection, conflict with another
# transaction, resources, locks and time-outs, operator, system; and a server that can only read,
# as a standby does until it takes over.
_PASSING = ("08", "40", "53", "55", "57", "58", "25006")
# Whatever the message: wrong user, missing database, schema, table, column or right.
_OF_TARGET = ("28", "3D", "3F", "42")


class Session:
    """Runs transactions on one connection, and connects again after a failure of the server."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._connection: Connection | None = None

    def run(
        self,
        work: Callable[[Connection], Result],
        *,
        keep: bool = True,
        statements: int | None = 1,
    ) -> Result:
        """Run work in one transaction. Raises SinkError.

        ``keep`` False: roll it back. ``statements``: of the work, which bounds its time; None: no
        bound.
        """
        # Begin and commit are statements, too.
        bound = None if statements is None else self._options.timeout * (statements + 2)
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            with (
                cut_after(self._connection, bound),
                self._connection.transaction(force_rollback=not keep),
            ):
                if statements is None:
                    self._connection.execute("SET LOCAL statement_timeout = 0")
                return work(self._connection)
        except (psycopg.Error, UnicodeError) as error:
            failure = _failure(error, creates=self._options.create)
            if failure.transient:
                self.close()
            raise failure from None  # a traceback would quote the row

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error):
                connection.close()

    def _connect(self) -> Connection:
        milliseconds = round(self._options.timeout * 1000)
        connection: Connection = psycopg.connect(_conninfo(self._options.url), autocommit=True)
        try:
            with cut_after(connection, self._options.timeout):
                connection.execute(
                    "SELECT set_config('statement_timeout', %s, false)", [str(milliseconds)]
                )
        except BaseException:
            connection.close()
            raise
        return connection


def _conninfo(url: str) -> str:
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        # Of a password with an at sign, the rest would be the host, and in messages.
        if "@" in str(parts.get("host", "")):
            raise ValueError
        merged: dict[str, Any] = {**_PARAMETERS, **parts}
        return psycopg.conninfo.make_conninfo("", **merged)
    except (psycopg.Error, ValueError):
        raise SinkError(
            "url: not a URL such as postgresql://user:password@host/database; percent-encode"
            " special characters of the password"
        ) from None


def _failure(error: psycopg.Error | UnicodeError, *, creates: bool) -> SinkError:
    code = getattr(error, "sqlstate", None)
    lost = code is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    # Another process has dropped a table, or creates it at the same time.
    again = creates and (
        isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.DuplicateTable)
        or (
            isinstance(error, psycopg.errors.UniqueViolation)
            and error.diag.schema_name == "pg_catalog"
        )
    )
    passing = code is not None and code.startswith(_PASSING)
    text = f"PostgreSQL: {_reason(error)}"
    transient = lost or again or passing
    if not transient and code is not None and code.startswith(_OF_TARGET):
        return TargetError(text)
    return SinkError(text, transient=transient)


def _reason(error: psycopg.Error | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return f"a text cannot be encoded: {getattr(error, 'reason', type(error).__name__)}"
    diag = error.diag
    if error.sqlstate is None or not diag.message_primary:  # of the connection
        return " ".join(str(error).split()) or type(error).__name__
    names = {
        "context": diag.context,
        "table": diag.table_name,
        "column": diag.column_name,
        "constraint": diag.constraint_name,
        "type": diag.datatype_name,
    }
    return of_sql(type(error).__name__, error.sqlstate, diag.message_primary, names)
