"""The outbox table as an operator sees it: looks at rows, counts marks, deletes rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

from oplog_relay.db import translated
from oplog_relay.db.names import Names
from oplog_relay.db.rows import read_time, text_of
from oplog_relay.db.url import parse
from oplog_relay.model.row import shown
from oplog_relay.model.settings import DatabaseSettings
from oplog_relay.model.stamp import PART

# Seconds to wait for a connection, an answer or a lock.
PATIENCE = 10


class OperatedRow(NamedTuple):
    """A row as it is stored. ``create_time``: text, in UTC if it can be read.

    Invalid UTF-8 is in surrogates, as in ``Row``.
    """

    id: int
    create_time: str
    topic: str
    key: str
    value: str | None


class OperatedTable:
    """An open outbox table. Each change is committed at once.

    Raises ConfigError for names and a URL of no use. All methods raise OutboxError.
    """

    def __init__(self, settings: DatabaseSettings) -> None:
        self._names = Names.of(settings.table)
        self._url = parse(settings.url)
        with translated(self._url):
            self._connection = self._url.connect(PATIENCE, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def find(self, ids: Sequence[int]) -> list[OperatedRow]:
        """Return the existing rows, in the order of ``ids``."""
        n = self._names
        sql = (
            f"SELECT {n.id}, {n.create_time}, {n.topic}, {n.key}, {n.value}"
            f" FROM {n.table} WHERE {n.id} = "
        )
        found = [row for id_ in ids for row in self._ask(sql, id_)]
        return [
            OperatedRow(
                id_, _time(time), _text(topic), _text(key), None if value is None else _text(value)
            )
            for id_, time, topic, key, value in found
        ]

    def delete(self, row: OperatedRow) -> bool:
        """Delete a found row. Return whether it was still there, and not another one."""
        n = self._names
        with self._transaction():
            is_there = self.find([row.id]) == [row]
            return is_there and bool(self._ask(f"DELETE FROM {n.table} WHERE {n.id} = ", row.id))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Keep the table from being emptied meanwhile."""
        with translated(self._url):
            self._connection.execute(self._url.begin)
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def marked(self, at_most: int) -> dict[str, int]:
        """Return the number of marked rows by leader id, among ``at_most`` rows.

        Zeros stand for the last digits of an id, which are the number of the mark in the table.
        """
        n = self._names
        leader = f"substr(CAST({n.leader_id} AS varchar), 1, {PART})"
        found = self._ask(
            f"SELECT leader, count(*) FROM (SELECT {leader} AS leader FROM {n.table}"
            f" ORDER BY {n.id} LIMIT {at_most:d}) AS counted WHERE leader IS NOT NULL"
            " GROUP BY leader ORDER BY count(*) DESC"
        )
        leaders = ((shown(leader), rows) for leader, rows in found)
        return {
            leader if len(leader) < PART else leader.ljust(36, "0"): rows
            for leader, rows in leaders
        }

    def _ask(self, sql: str, id_: int | None = None) -> list[Any]:
        """Run a statement, with an id at its end. Return rows, or one element per changed row."""
        with translated(self._url):
            if id_ is None:
                cursor = self._connection.execute(sql)
            else:
                parameter = next(iter(self._url.drivers.values()))
                # A name may have percent signs, which mean something beside parameters.
                statement = sql.replace("%", "%%") if parameter == "%s" else sql
                cursor = self._connection.execute(f"{statement}{parameter}", (id_,))
            return list(cursor) if cursor.description else [None] * max(cursor.rowcount, 0)


def _time(stored: object) -> str:
    time = stored if isinstance(stored, datetime) else read_time(stored)
    return time.isoformat(" ", "milliseconds") if isinstance(time, datetime) else str(stored)


def _text(stored: object) -> str:
    return text_of(stored) if isinstance(stored, bytes) else str(stored)
