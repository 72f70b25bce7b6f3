"""A connection to PostgreSQL, opened on demand, with nothing in its session.

So PgBouncer may give each transaction another server: no statement is prepared, and settings and
temporary tables end with their transaction.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import psycopg

from oplog_pipe.errors import SinkError
from oplog_pipe.sinks.postgres.arrays import Array, ArrayDumper
from oplog_pipe.sinks.postgres.cut import cut_after
from oplog_pipe.sinks.postgres.failures import failure, refusal
from oplog_pipe.sinks.postgres.rows import Statement
from oplog_pipe.sinks.postgres.tables import Connection

Result = TypeVar("Result")


class Guard(NamedTuple):
    """A statement that fails in a transaction which comes too late.

    ``label``: name of the connection in such a transaction: without a semicolon or a quote.
    """

    sql: bytes
    values: tuple[Any, ...]
    label: str


class Session:
    """Runs transactions on one connection, and connects again after a failure of the server.

    ``timeout``: of a statement, in seconds. ``creates``: the sink creates missing tables.
    """

    def __init__(self, conninfo: str, timeout: float, *, creates: bool) -> None:
        self._conninfo = conninfo
        self._timeout = timeout
        self._creates = creates
        self._connection: Connection | None = None
        self._sent: list[tuple[Statement, psycopg.Cursor[tuple[Any, ...]]]] = []
        self._sending = ExitStack()
        self._error: psycopg.Error | None = None
        self.may_upload = True
        """Whether the user may create temporary tables."""
        self.guard: Guard | None = None
        """Of every later transaction."""

    def run(self, work: Callable[[Connection], Result], *, statements: int | None = 1) -> Result:
        """Run work in one transaction. Raises SinkError.

        ``statements``: of the work, to bound its time; None: no bound.
        """
        with self._translated():
            connection = self.connect()
            with cut_after(connection, self._bound(statements)):
                connection.execute(self._begin(bounded=statements is not None))
                self._check(connection)
                result = work(connection)
                connection.execute(b"COMMIT")
                return result

    def send(self, statements: Sequence[Statement], *, keep: bool) -> None:
        """Send a whole transaction. Call ``finish`` next. ``keep`` False: roll it back.

        The server works as soon as a statement arrives. No lock waits for this process.
        """
        uploads = [each.upload for each in statements if each.upload is not None]
        self._sent, self._error = [], None
        with self._translated():
            connection = self.connect()
            bound = self._bound(len(statements) + 2 * len(uploads))
            self._sending.enter_context(cut_after(connection, bound))
            head = self._begin(bounded=True).split(b";")
            if uploads:
                try:
                    connection.execute(b";".join([*head, *(each.create for each in uploads)]))
                except psycopg.errors.InsufficientPrivilege as error:
                    self.may_upload = False
                    reason = "the user may not create temporary tables; going on without them"
                    raise SinkError(f"PostgreSQL: {reason}", transient=True) from error
                for upload in uploads:
                    with connection.cursor().copy(upload.copy) as copy:
                        copy.write(upload.data)
                head = []
            self._sending.enter_context(connection.pipeline())
            try:
                for sql in head:
                    connection.execute(sql)
                # Behind the uploads: no lock of it waits for this process.
                self._check(connection)
                for each in statements:
                    self._sent.append((each, connection.execute(each.sql, each.values)))
                connection.execute(b"COMMIT" if keep else b"ROLLBACK")
            except psycopg.Error as error:
                self._error = error  # the answers before and behind it are read by ``finish``

    def finish(self) -> list[tuple[Statement, int]]:
        """Return each sent statement with the number of changed rows. Raises SinkError."""
        with self._translated():
            try:
                self._sending.close()
            except psycopg.Error as error:
                raise self._error or error from None
            if self._error is not None:
                raise self._error
            return [(statement, cursor.rowcount) for statement, cursor in self._sent]

    def connect(self) -> Connection:
        """Return an open connection. Raises SinkError."""
        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(
                    self._conninfo, autocommit=True, prepare_threshold=None
                )
            except psycopg.Error as error:
                raise refusal(error) from None
            self._connection.adapters.register_dumper(Array, ArrayDumper)
        return self._connection

    def close(self) -> None:
        """Close the connection, also if ``finish`` was not called after ``send``."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error):
                connection.close()
        with suppress(psycopg.Error):
            self._sending.close()

    def _bound(self, statements: int | None) -> float | None:
        # Begin, guard and commit are statements, too.
        return None if statements is None else self._timeout * (statements + 3)

    def _begin(self, *, bounded: bool) -> bytes:
        milliseconds = max(round(self._timeout * 1000), 1) if bounded else 0
        begin = f"BEGIN;SET LOCAL statement_timeout = {milliseconds}"
        if self.guard is not None:
            begin += f";SET LOCAL application_name = '{self.guard.label}'"
        return begin.encode()

    def _check(self, connection: Connection) -> None:
        if self.guard is not None:
            connection.execute(self.guard.sql, self.guard.values)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise SinkError for errors of the driver. After any error no transaction is open."""
        try:
            yield
        except BaseException as error:
            with suppress(psycopg.Error):
                self._sending.close()
            if not isinstance(error, psycopg.Error | UnicodeError):
                self._undo()
                raise
            found = failure(error, creates=self._creates)
            if found.transient:
                self.close()
            else:
                self._undo()
            raise found from None  # a traceback would quote the row

    def _undo(self) -> None:
        connection = self._connection
        if connection is not None and not connection.closed:
            try:
                with cut_after(connection, self._timeout):
                    connection.execute(b"ROLLBACK")
            except psycopg.Error:
                self.close()
