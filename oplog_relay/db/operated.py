"""The outbox table as an operator sees it: looks at rows, counts marks, deletes rows."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple

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


class OperatedTable(AbstractContextManager["OperatedTable"]):
    """An open outbox table. Each change is committed at once. All methods raise OutboxError.

    Raises ConfigError for unusable names and URLs.
    """

    def __init__(self, settings: DatabaseSettings) -> None:
        self._names = Names.of(settings.table)
        self._url = parse(settings.url)
        with translated(self._url):
            self._connection = self._url.connect(PATIENCE, autocommit=True)

    def __exit__(self, *_: object) -> None:
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
        """Delete a found row. Return False if the row is gone or has changed."""
        n = self._names
        with translated(self._url):
            self._connection.execute(self._url.begin)  # keeps others from emptying the table
            try:
                is_there = self.find([row.id]) == [row]
                sql = f"DELETE FROM {n.table} WHERE {n.id} = "
                return is_there and bool(self._ask(sql, row.id))
            finally:
                self._connection.execute("COMMIT")

    def marked(self, at_most: int) -> dict[str, int]:
        """Return the number of marked rows by leader id, among ``at_most`` rows.

        The last digits of each id are zeros: in the table they are the number of the mark.
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
