"""Rows a statement of a batch has left alone.

A row of a newer version stays: the message has come again. A row of another owner stays, and the
message is refused. If that owner deletes the row meanwhile, the message is written again.
"""

from collections.abc import Mapping
from typing import Any

from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.sinks.parts.template import Numbered
from oplog_pipe.sinks.postgres.rows import RowStatements
from oplog_pipe.sinks.postgres.session import Session
from oplog_pipe.sinks.postgres.tables import Connection

# Id, owner and version of a row.
_Found = list[tuple[Any, ...]]


class Skipped:
    """Finds out why rows of a table were left alone.

    ``cast``: of a text to the type of the id. ``objects``: of the table, in the batch.
    """

    def __init__(
        self,
        rows: RowStatements,
        owner: Owner,
        table: str,
        cast: str,
        objects: Mapping[str, Numbered],
    ) -> None:
        self._rows = rows
        self._owner = owner
        self._table = table
        self._cast = cast
        self._objects = objects

    def settle(self, session: Session, ids: list[str], *, keep: bool) -> None:
        """Settle what a statement for ``ids`` has left alone.

        ``keep`` False: it was rolled back, and nothing is written again. Raises SinkError for a row
        of another owner, ConfigError for a version above the newest one of the folder.
        """
        self._judge(session.run(lambda connection: self._others(connection, ids)))
        if keep and self._objects[ids[0]][1].op != "delete":
            me, objects = str(self._owner), self._objects
            query = self._rows.unwritten(self._table, self._cast, ids, objects, me)
            if lost := [row[0] for row in session.run(query.rows)]:
                self._judge(session.run(lambda each: self._write_again(each, lost), statements=2))

    def _write_again(self, connection: Connection, ids: list[str]) -> _Found:
        """Write objects. Return new rows of others.

        The statement locks the rows it leaves alone. A trigger may still leave out a row.
        """
        objects = {id: self._objects[id] for id in ids}
        me = str(self._owner)
        for each in self._rows.statements(self._table, self._cast, objects, me, upload=""):
            connection.execute(each.sql, each.values)
        return self._others(connection, ids)

    def _others(self, connection: Connection, ids: list[str]) -> _Found:
        """Return rows of other owners, and of versions the folder has not given."""
        me, newest = str(self._owner), self._owner.newest()
        return self._rows.others(self._table, self._cast, ids, me, newest).rows(connection)

    def _judge(self, found: _Found) -> None:
        others = [row for row in found if not self._owner.may_write(row[1])]
        if others:
            id, other, _ = min(others, key=lambda row: self._objects[row[0]][0])
            row = f"table {self._table}: row {id!r}"
            raise self._owner.refusal(row, other, self._objects[id][0])
        if found:
            self._owner.check(f"table {self._table}", max(row[2] for row in found))
