"""A sink that is a table of Spark: a history of all rows, or a mirror of the objects."""

import logging
from collections.abc import Callable

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from oplog_pipe.errors import ConfigError
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.spark.batch import Batches, SinkFigures
from oplog_pipe.spark.folders import Folders
from oplog_pipe.spark.place import is_within, located
from oplog_pipe.spark.rules import FILES
from oplog_pipe.spark.select import Kept, kept, messages, selected
from oplog_pipe.spark.tables.history import HistoryTable
from oplog_pipe.spark.tables.mirror import MirrorTable
from oplog_pipe.spark.tasks.rows import REPORT, Report, ends_of, told_of
from oplog_pipe.spark.tasks.work import SinkWork
from oplog_pipe.spark.versions import Versions
from oplog_sync.failure import SPARK_ERRORS

logger = logging.getLogger("oplog_pipe")


class TableBatches(Batches):
    """Writes a table.

    ``checkpoint``: its folder. ``id``: of the checkpoint. Raises ConfigError if the folders of
    table and checkpoint are in one another.
    """

    def __init__(
        self,
        work: SinkWork,
        figures: SinkFigures,
        versions: Versions,
        check_driver: Callable[[], None],
        checkpoint: str,
        id: int,
    ) -> None:
        assert isinstance(work.sink.options, FormatOptions)
        super().__init__(work, check_driver)
        self._versions = versions
        self._id = id
        self._options = work.sink.options
        self._path = located(self._options.path, work.root).rstrip("/")
        self._figures = figures
        self._table: HistoryTable | MirrorTable | None = None
        if is_within(self._path, checkpoint) or is_within(checkpoint, self._path):
            raise ConfigError(
                f"{work.place}.path: the folder of the table and --checkpoint must not be in one"
                " another"
            )

    def _run(self, rows: DataFrame, number: int) -> None:
        planned = self._versions.planned(number)
        rows = self._versions.give(rows, number, planned)
        if self._options.format not in FILES:
            self._write(rows, number, lambda result, _: self._append(result, number))
            return
        if self._table is None:
            kind = MirrorTable if self._options.merge else HistoryTable
            folders = Folders(rows.sparkSession, self._path)
            self._table = kind(folders, self._path, self._work, self._id)
            self._check_driver()  # it may have been frozen before it took the table over
        table = self._table
        if table.has(number, planned):
            self._figures.batch = number
            return
        try:
            self._write(
                rows,
                number,
                lambda result, kept: table.write(result, kept, number),
                lambda: table.publish(number, planned),
            )
        except (*SPARK_ERRORS, OSError):
            table.part.check()  # an error of another driver's doing
            raise

    def _write(
        self,
        rows: DataFrame,
        number: int,
        write: Callable[[DataFrame, Kept], None],
        publish: Callable[[], None] = lambda: None,
    ) -> None:
        work, figures = self._work, self._figures
        with kept(rows, work) as found:
            result = selected(messages(found.rows), work.sink, work.root, work.place)
            seen = Observation()
            write(result.observe(seen, F.count(F.lit(1)).alias("rows")), found)
        publish()
        figures.batch = number
        figures.filtered += sum(each.filtered for each in told_of(found.others, REPORT, Report))
        figures.written += int(seen.get["rows"])
        for source in ends_of(found.others) if self._options.merge else ():
            logger.info("sink %r: the copy of %s is complete", work.sink.name, source)

    def _append(self, rows: DataFrame, number: int) -> None:
        # Delta leaves out a batch that it has.
        once = {"txnAppId": f"oplog-pipe-{self._id:012x}", "txnVersion": str(number)}
        writer = rows.write.format(self._options.format).options(**self._options.options)
        writer.options(**once).mode("append").save(self._path)
