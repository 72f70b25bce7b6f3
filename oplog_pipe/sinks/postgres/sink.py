"""Keep tables in PostgreSQL equal to the source.

A row has the columns id, version, source, timestamp, oplog_owner, and data or the columns of the
settings. The sink changes and deletes rows of its owner only.
"""

import logging
from collections.abc import Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

from psycopg.errors import InsufficientPrivilege

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.sinks.parts.fence import Fence
from oplog_pipe.sinks.parts.ownership import OwnedRows
from oplog_pipe.sinks.parts.template import Collapsed, Template, collapse
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres.address import conninfo, unverified
from oplog_pipe.sinks.postgres.fence import PostgresFence
from oplog_pipe.sinks.postgres.lanes import Lanes
from oplog_pipe.sinks.postgres.places import Places, delete_old
from oplog_pipe.sinks.postgres.rows import RowStatements, Statement, query
from oplog_pipe.sinks.postgres.session import Session
from oplog_pipe.sinks.postgres.skipped import Skipped
from oplog_pipe.sinks.postgres.tables import LOCK, OWNER, Connection, read_table

logger = logging.getLogger("oplog_pipe")

_NEWEST = f"SELECT max(version) FROM {{table}} WHERE {OWNER} = %(owner)s"
_ADOPT = f"UPDATE {{table}} SET {OWNER} = %(owner)s WHERE {OWNER} = %(former)s"


class PostgresSink(OwnedRows):
    """Writes a batch in one transaction, or a large one in two, split by id.

    A deleted object leaves nothing behind. So an older message, repeated, brings the object back
    until its delete comes again.
    """

    def __init__(
        self, options: PostgresOptions, namespace: str = ".*", root: Path = Path()
    ) -> None:
        """``namespace``: regular expression. ``root``: folder of relative paths in ``url``.

        Raises SinkError for an unusable ``url``.
        """
        super().__init__()
        self._creates = options.create
        self._places = Places(options.table, namespace)
        self._id = Template(options.id)
        self._rows = RowStatements(options.columns)
        self._remark = unverified(options.url)
        parameters = conninfo(options.url, root)
        self._lanes = Lanes(parameters, options.timeout, creates=options.create)
        self._fence_session = Session(parameters, options.timeout, creates=options.create)
        self._found_fence: PostgresFence | None = None
        self._session = self._lanes.main
        # Existing tables with the column of the owner, and the cast of a string to their id.
        self._ready: dict[str, str] = {}

    def open(self) -> None:
        self._rows.check()
        self._session.run(lambda connection: connection.execute("SELECT 1"))
        if self._remark and self._given is not None:
            logger.warning("sink %r: %s", self._owner.sink, self._remark)

    def write(self, messages: Sequence[Message]) -> None:
        tables = self._collapse(messages)
        try:
            self._write(tables)
        except SinkError as error:
            if error.transient or isinstance(error, TargetError):
                raise
            if len(messages) == 1:
                error.index = 0
            if error.index == 0:
                raise
            raise self._blame(messages, error) from error

    def end_copy(self, generation: int, source: str) -> None:
        given = {"source": source, "generation": generation, "owner": str(self._owner)}
        tables = self._session.run(self._places.tables)
        self._judge_new(tables)
        for table in tables:
            start: str | None = None
            while True:
                piece = partial(delete_old, table=table, start=start, given=given)
                start = self._session.run(piece, statements=3)
                if start is None:
                    break

    @property
    def late_seconds(self) -> float:
        return 0.0  # the fence is a part of each transaction

    def begin_term(self) -> int:
        return self._fence().begin_term()

    def read_fence(self) -> Fence | None:
        return self._fence().read()

    def move_fence(self, fence: Fence) -> None:
        self._fence().move(fence)

    def stand_at(self, fence: Fence) -> None:
        self._lanes.guard(self._fence().guard(fence))

    def _fence(self) -> PostgresFence:
        if self._found_fence is None:
            session = self._fence_session
            schema = session.run(self._places.schema)
            self._found_fence = PostgresFence(session, self._owner, schema, self._creates)
        return self._found_fence

    def adopt(self, former: str) -> int:
        """Change all rows of the former owner in one transaction."""

        def work(connection: Connection) -> int:
            tables = self._places.tables(connection)
            for table in tables:
                self._judge(connection, table, former)
            given = {"owner": str(self._owner), "former": former}
            return sum(connection.execute(query(_ADOPT, each), given).rowcount for each in tables)

        return self._session.run(work, statements=None)

    def missing(self) -> list[str]:
        """Return the statements for the column of the owner in tables without it."""
        if self._creates:
            return []
        tables = self._session.run(lambda connection: self._places.tables(connection, owned=False))
        return [self._rows.add_owner(table) for table in tables]

    def faults(self) -> list[str]:
        return self._session.run(self._faults)

    def remarks(self) -> list[str]:
        return [self._remark] if self._remark else []

    def close(self) -> None:
        self._lanes.close()
        self._fence_session.close()

    def _collapse(self, messages: Sequence[Message]) -> Collapsed:
        """Return what is to be written. Raises SinkError for the name of a table."""
        tables = collapse(messages, self._places.remembering(), self._id.of)
        for objects in tables.values():
            self._places.check(*next(iter(objects.values())))
        return tables

    def _write(self, tables: Collapsed, *, keep: bool = True) -> None:
        """Write messages. ``keep`` False: roll it back."""
        try:
            self._judge_new(tables)
            if new := tables.keys() - self._ready.keys():
                prepare = partial(self._prepare, sorted(new))
                self._ready |= self._session.run(prepare, statements=4 * len(new))
            self._write_tables(tables, keep=keep)
        except SinkError:
            self._ready.clear()
            raise

    def _write_tables(self, tables: Collapsed, *, keep: bool) -> None:
        # Two strings may be one id, and their messages have an order.
        whole = {table for table in tables if self._ready[table]}
        count = self._lanes.count(sum(len(tables[each]) for each in tables.keys() - whole))
        parts = _split(tables, count, whole)

        def build(lane: int, may_upload: bool) -> list[Statement]:
            found = []
            for number, (table, objects) in enumerate(sorted(parts[lane].items())):
                upload = f"oplog_rows_{number}" if may_upload else ""
                cast, owner = self._ready[table], str(self._owner)
                found += self._rows.statements(table, cast, objects, owner, upload=upload)
            return found

        for statement, number in self._lanes.write(count, build, keep=keep):
            if number < len(statement.ids):
                table = statement.table
                objects, cast = tables[table], self._ready[table]
                skipped = Skipped(self._rows, self._owner, table, cast, objects)
                skipped.settle(self._session, statement.ids, keep=keep)

    def _blame(self, messages: Sequence[Message], found: SinkError) -> SinkError:
        """Return the error with the index of the first message refused by itself.

        ``found.index``: of any refused message; None: not known.
        """
        start, end = 0, len(messages) if found.index is None else found.index + 1
        try:
            while end - start > 1:
                middle = (start + end) // 2
                if self._refusal(messages[start:middle]) is None:
                    start = middle
                else:
                    end = middle
            refusal = self._refusal(messages[start:end])
        except SinkError as error:
            return error
        # None: it fails only together with others.
        return SinkError(str(refusal), index=start) if refusal else found

    def _refusal(self, messages: Sequence[Message]) -> SinkError | None:
        try:
            self._write(self._collapse(messages), keep=False)
        except SinkError as error:
            if error.transient:
                raise
            return error
        return None

    def _prepare(self, tables: Iterable[str], connection: Connection) -> dict[str, str]:
        """Create tables, or add the column of the owner. Return the cast of a text to each id."""
        casts = {}
        for name in tables:
            table = read_table(connection, name)
            if table is None and self._creates:
                connection.execute(LOCK)  # one of several writers creates it
                table = read_table(connection, name)
            if table is None:
                if self._creates:
                    connection.execute(self._rows.create(name))
                casts[name] = ""
                continue
            if not table.is_owned:
                self._add_owner(name, connection)
            if faults := table.faults(self._rows.columns, whole=self._rows.is_whole):
                raise TargetError("; ".join(faults))
            casts[name] = table.id_cast
        return casts

    def _add_owner(self, table: str, connection: Connection) -> None:
        statement = self._rows.add_owner(table)
        try:
            if not self._creates:
                raise InsufficientPrivilege
            connection.execute(statement.encode())
        except InsufficientPrivilege:
            raise TargetError(
                f"table {table} has no column {OWNER}; run as its owner: {statement}"
            ) from None

    def _faults(self, connection: Connection) -> list[str]:
        fixed = self._places.fixed
        names = [fixed] if fixed else self._places.tables(connection, owned=None)
        found = []
        for name in names:
            if table := read_table(connection, name):
                columns = self._rows.columns
                found += table.faults(columns, whole=self._rows.is_whole) + table.gaps(columns)
                found += filter(None, [table.refusal()])
            elif not self._creates:
                found.append(f"table {name} does not exist; create it, or set create: true")
        return found

    def _judge_new(self, tables: Iterable[str]) -> None:
        """Judge tables before the first change in them. Raises ConfigError, SinkError."""

        def judge(connection: Connection) -> None:
            for name in new:
                table = read_table(connection, name)
                if table is not None and table.is_owned:
                    self._judge(connection, name, str(self._owner))
                self._judged.add(name)

        if new := set(tables) - self._judged:
            self._session.run(judge, statements=None)

    def _judge(self, connection: Connection, table: str, owner: str) -> None:
        # An index on the column makes this fast. Without one it may take long, once a start.
        row = connection.execute(query(_NEWEST, table), {"owner": owner}).fetchone()
        self._owner.check(f"table {table}", row[0] if row else None)


def _split(tables: Collapsed, count: int, whole: Container[str]) -> list[Collapsed]:
    """Divide the objects by their ids, in each process alike. ``whole``: tables for one part."""
    if count == 1:
        return [tables]
    parts: list[Collapsed] = [{} for _ in range(count)]
    for table, objects in tables.items():
        if table in whole:
            parts[0][table] = objects
            continue
        for part in parts:
            part[table] = {}
        for id, numbered in objects.items():
            parts[crc32(id.encode(errors="replace")) % count][table][id] = numbered
    return parts
