"""The fence of an owner's rows in PostgreSQL: a row that each transaction of a writer locks.

A writer's transaction has a share of the lock from its first statement to its commit. So the driver
moves the fence before it, and then the writer fails, or behind it. A writer that has stopped in a
transaction is disconnected.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

from psycopg.errors import InsufficientPrivilege, LockNotAvailable

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.sinks.parts.fence import Fence, other_driver
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.sinks.postgres.failures import MOVED_FENCE
from oplog_pipe.sinks.postgres.rows import query, table_name
from oplog_pipe.sinks.postgres.session import Guard, Session
from oplog_pipe.sinks.postgres.tables import LOCK, Connection

Result = TypeVar("Result")

TABLE = "oplog_fence"

# How long the driver waits for a writer's transaction, which then counts as stopped.
_WAIT_MS = 5000
_CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    owner text COLLATE "C" PRIMARY KEY,
    term bigint NOT NULL,
    step bigint NOT NULL,
    moved timestamp with time zone NOT NULL DEFAULT now()
)
"""
_BEGIN = """
INSERT INTO {table} AS old (owner, term, step) VALUES (%b, 1, -1)
ON CONFLICT (owner) DO UPDATE SET term = old.term + 1, step = -1, moved = now()
RETURNING term
"""
_READ = "SELECT term, step FROM {table} WHERE owner = %b"
_MOVE = """
UPDATE {table} SET step = %b::bigint, moved = now()
WHERE owner = %b AND term = %b::bigint AND step <= %b::bigint
RETURNING term
"""
# A text that is no number fails, and ends the transaction, also in the middle of a pipeline.
_GUARD = f"""
SELECT coalesce((
    SELECT '1' FROM {{table}} WHERE owner = %b AND term = %b::bigint AND step = %b::bigint FOR SHARE
), '{MOVED_FENCE}')::integer
"""
_DISCONNECT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %b AND datname = current_database() AND pid <> pg_backend_pid()
"""


class _BlockedError(Exception):
    """A writer's transaction holds the fence."""


class PostgresFence:
    """``session``: its own one. ``schema``: of its table, the same as that of the rows.

    ``creates``: create the table if it is missing.
    """

    def __init__(self, session: Session, owner: Owner, schema: str, creates: bool) -> None:
        self._session = session
        self._owner = str(owner)
        self._table = table_name(schema, TABLE)
        self._creates = creates
        # The name of a connection is cut at 63 bytes.
        digest = blake2b(self._owner.encode(), digest_size=8).hexdigest()
        self._label = f"oplog-pipe writer {digest}"

    def guard(self, fence: Fence) -> Guard:
        """Return what a transaction begins with that is to fail if the fence is elsewhere."""
        return Guard(query(_GUARD, self._table), (self._owner, *fence), self._label)

    def begin_term(self) -> int:
        if not self._exists():
            self._create()

        def begin(connection: Connection) -> int:
            try:
                row = connection.execute(query(_BEGIN, self._table), [self._owner]).fetchone()
            except InsufficientPrivilege:
                raise TargetError(
                    f"PostgreSQL: the user may not change table {self._table}; run as its owner:"
                    f' GRANT SELECT, INSERT, UPDATE ON {self._table} TO "{connection.info.user}"'
                ) from None
            assert row is not None
            return int(row[0])

        return self._locked(begin)

    def read(self) -> Fence | None:
        """Return where the fence is; None: there is none. Raises SinkError."""

        def read(connection: Connection) -> Fence | None:
            row = connection.execute(query(_READ, self._table), [self._owner]).fetchone()
            return None if row is None else Fence(*row)

        return self._session.run(read) if self._exists() else None

    def _exists(self) -> bool:
        def look(connection: Connection) -> bool:
            row = connection.execute("SELECT to_regclass(%b) IS NULL", [self._table]).fetchone()
            return row is not None and not row[0]

        return self._session.run(look)

    def _create(self) -> None:
        def create(connection: Connection) -> None:
            try:
                if not self._creates:
                    raise InsufficientPrivilege
                connection.execute(LOCK)
                connection.execute(query(_CREATE, self._table))
            except InsufficientPrivilege:
                raise TargetError(
                    f"table {self._table} is missing; run as a user who may create it:"
                    f" {self._statement()}"
                ) from None

        self._session.run(create, statements=2)

    def move(self, fence: Fence) -> None:
        """Raises FencedError if a later term has begun."""

        def move(connection: Connection) -> bool:
            given = (fence.step, self._owner, fence.term, fence.step)
            return connection.execute(query(_MOVE, self._table), given).fetchone() is not None

        if not self._locked(move):
            raise other_driver(self._owner)

    def close(self) -> None:
        self._session.close()

    def _locked(self, work: Callable[[Connection], Result]) -> Result:
        """Run work that needs the lock of the fence, and disconnect those who hold it too long."""

        def run(connection: Connection) -> Result:
            connection.execute(f"SET LOCAL lock_timeout = {_WAIT_MS}".encode())
            try:
                return work(connection)
            except LockNotAvailable:
                raise _BlockedError from None

        try:
            return self._session.run(run, statements=3)
        except _BlockedError:
            ended = self._session.run(self._disconnect)
            holder = "a task that has stopped, and is now disconnected," if ended else "another one"
            raise SinkError(
                f"PostgreSQL: {holder} holds the lock of a row of table {self._table}",
                transient=True,
            ) from None

    def _disconnect(self, connection: Connection) -> bool:
        """Return whether there was a task to disconnect."""
        try:
            return bool(connection.execute(_DISCONNECT, [self._label]).fetchall())
        except InsufficientPrivilege:
            raise TargetError(
                f"PostgreSQL: a task of another user holds the lock of a row of {self._table}, and"
                " this user may not disconnect it; run as a user who may grant it: GRANT"
                f' pg_signal_backend TO "{connection.info.user}"'
            ) from None

    def _statement(self) -> str:
        return " ".join(_CREATE.format(table=self._table).split())
