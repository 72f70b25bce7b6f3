"""A table of Spark with all rows. A batch is a folder of it."""

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame

from oplog_pipe.errors import ConfigError
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.spark.folders import Folders
from oplog_pipe.spark.select import Kept, analysing
from oplog_pipe.spark.tables.mark import (
    Mark,
    check_outer,
    check_owner,
    check_types,
    mark_of,
    note,
    older_checkpoint,
)
from oplog_pipe.spark.tables.part import Part
from oplog_pipe.spark.tasks.work import SinkWork

BATCH = "oplog_batch"
"""The partition column."""

# In the folder of a batch. Spark reads no files whose names begin so.
_PLANNED = "_planned"


class HistoryFolder:
    """``path``: of the table. ``id``: of the checkpoint. A folder of a batch is never replaced."""

    def __init__(self, folders: Folders, path: str, work: SinkWork, id: int) -> None:
        self._folders = folders
        self._path = path
        self._work = work
        self._id = id
        self._columns: dict[str, str] = {}
        self.part = Part(folders, f"{path}/_", work.owner, work.run)

    def start(self) -> None:
        """Raise ConfigError if something else is there. Else take the table over."""
        folders, path = self._folders, self._path
        check_outer(folders, path, self._work)
        check_owner(folders, path, self._work, is_mirror=False)
        if mark_of(folders, path) is None:
            note(folders, path, Mark(self._work.owner, self._id))
        self.part.start()
        for each in folders.names(f"{path}/_columns-"):
            if text := folders.read(each):  # else a driver was killed in between
                self._columns |= msgspec.json.decode(text, type=dict[str, str])

    def has(self, number: int, planned: Sequence[str]) -> bool:
        """Return whether a batch is there. ``planned``: where it ends, as the checkpoint says.

        Raises ConfigError if it has other rows than planned.
        """
        path = self._batch(number)
        if not self._folders.exists(path):
            return False
        if self._folders.read(f"{path}/{_PLANNED}").splitlines() != [*planned]:
            raise older_checkpoint(self._path, self._work)
        return True

    def check(self, columns: Mapping[str, str]) -> None:
        """Raise ConfigError if the columns do not fit to the rows before. By name: their types."""
        if any(name.lower() == BATCH for name in columns):
            raise ConfigError(
                f"{self._work.place}.select: column {BATCH} is the table's own, with the batch of"
                " a row; give yours another name"
            )
        check_types(self._columns, columns, self._work.place)

    def publish(self, number: int, columns: Mapping[str, str], planned: Sequence[str]) -> None:
        """Let the rows of the part be those of a batch, unless it is there. See ``has``."""
        folders = self._folders
        folders.write(f"{self.part.rows}/{_PLANNED}", "\n".join(planned).encode())
        self.part.check()  # the rows may be gone, and this folder a new one
        if columns.items() - self._columns.items():
            self._columns |= columns
            text = msgspec.json.encode(self._columns)
            folders.write(folders.unique(f"{self._path}/_columns-"), text)
        is_moved = folders.move(self.part.rows, self._batch(number))
        if not is_moved and not self.has(number, planned):
            raise self.part.overtaken()

    def _batch(self, number: int) -> str:
        return f"{self._path}/{BATCH}={self._id:012x}-{number:09d}"


class HistoryTable:
    """Writes batches. Starts at the first one, and raises ConfigError then."""

    def __init__(self, folders: Folders, path: str, work: SinkWork, id: int) -> None:
        assert isinstance(work.sink.options, FormatOptions)
        self._options = work.sink.options
        self._place = work.place
        self._folder = HistoryFolder(folders, path, work, id)
        self._folder.start()
        self.part = self._folder.part
        self._columns: dict[str, str] = {}

    def has(self, number: int, planned: Sequence[str]) -> bool:
        return self._folder.has(number, planned)

    def write(self, rows: DataFrame, kept: Kept, number: int) -> None:
        self._columns = dict(rows.dtypes)
        self._folder.check(self._columns)
        writer = rows.write.format(self._options.format).options(**self._options.options)
        with analysing(self._place):
            writer.mode("overwrite").save(self.part.rows)

    def publish(self, number: int, planned: Sequence[str]) -> None:
        self._folder.publish(number, self._columns, planned)
