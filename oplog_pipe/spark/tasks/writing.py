"""The writes of a sink in a task. The rows of an object come one after another, the newest last."""

from collections.abc import Sequence

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.base import Owned, Sink
from oplog_pipe.spark.tasks.refusals import Refusals
from oplog_pipe.spark.tasks.rows import Row


class Writing:
    """Collects the rows of one task, and writes them.

    A sink with owners gets the last message of each object only, so an attempt of a task that comes
    late writes what the batch ends with. Others get all.
    """

    def __init__(self, settings: SinkSettings, sink: Sink, refusals: Refusals) -> None:
        self.written = 0
        self._sink = sink
        self._limits = settings.batch
        self._refusals = refusals
        self._is_mirror = isinstance(sink, Owned)
        # By object for a mirror, else by number. The number of its messages: older ones count.
        self._waiting: dict[object, Row] = {}
        self._count = self._bytes = 0
        self._last_id: str | None = None

    def add(self, row: Row) -> None:
        """Take a message. Raises SinkError, ConfigError."""
        if self._is_full and not (self._is_mirror and row.id == self._last_id):
            self.flush()
        key: object = (row.namespace, row.id) if self._is_mirror else self._count
        before = self._waiting.pop(key, None)
        self._bytes += len(row.data or "") - (0 if before is None else len(before.data or ""))
        self._waiting[key] = row
        self._count += 1
        self._last_id = row.id

    def flush(self) -> None:
        """Write what waits. Raises SinkError, ConfigError."""
        rows = sorted(self._waiting.values(), key=_order)
        replaced = self._count - len(rows)
        self._waiting.clear()
        self._count = self._bytes = 0
        if rows:
            self._write(rows)
            self.written += replaced

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= self._limits.messages or self._bytes >= self._limits.bytes

    def _write(self, rows: Sequence[Row]) -> None:
        try:
            self._refusals.retry(lambda: self._try(rows))
        except SinkError as error:
            if not self._refusals.may_be_dead(error):
                raise
            if len(rows) > 1:
                for row in rows:
                    self._write([row])
                return
            self._refusals.refuse(rows[0], error)
        else:
            self.written += len(rows)
            self._refusals.succeed(len(rows))

    def _try(self, rows: Sequence[Row]) -> None:
        messages: list[Message] = [row.message(number) for number, row in enumerate(rows)]
        self._sink.write(messages)


def _order(row: Row) -> tuple[int, int, int]:
    return row.version or 0, row.at or 0, row.place or 0
