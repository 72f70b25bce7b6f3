"""A sink that is a table of Spark: a history of all rows, or a mirror of the objects."""

import logging

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from oplog_pipe.errors import ConfigError
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.spark.batch import Batches, SinkFigures
from oplog_pipe.spark.folders import Folders
from oplog_pipe.spark.mirror import MirrorTable
from oplog_pipe.spark.place import is_within, located
from oplog_pipe.spark.rules import FILES
from oplog_pipe.spark.select import kept, messages, selected
from oplog_pipe.spark.stream import numbered
from oplog_pipe.spark.tasks.rows import OPS, REPORT, Report, Row, ends_of, told_of
from oplog_pipe.spark.tasks.work import SinkWork

BATCH = "oplog_batch"
"""The partition of a history: a batch that is repeated replaces itself."""

logger = logging.getLogger("oplog_pipe")


class TableBatches(Batches):
    """Writes a table.

    ``checkpoint``: its folder. ``id``: of the checkpoint. Raises ConfigError if the folders of
    table and checkpoint are in one another.
    """

    def __init__(self, work: SinkWork, figures: SinkFigures, checkpoint: str, id: int) -> None:
        assert isinstance(work.sink.options, FormatOptions)
        super().__init__()
        self._work = work
        self._id = id
        self._options = work.sink.options
        self._path = located(self._options.path, work.root).rstrip("/")
        self._figures = figures
        self._mirror: MirrorTable | None = None
        if is_within(self._path, checkpoint) or is_within(checkpoint, self._path):
            raise ConfigError(
                f"{work.place}.path: the folder of the table and --checkpoint must not be in one"
                " another"
            )

    def _run(self, rows: DataFrame, number: int) -> None:
        work = self._work
        with kept(numbered(rows), work) as found:
            result = selected(messages(found), work.sink, work.root, work.place)
            seen = Observation()
            observed = result.observe(seen, F.count(F.lit(1)).alias("rows"))
            others = [Row(*each) for each in found.where(~F.col("op").isin(*OPS)).collect()]
            if self._options.merge:
                self._merge(result, observed, others)
            else:
                self._append(observed, number)
        self._figures.batch = number
        self._figures.filtered += sum(each.filtered for each in told_of(others, REPORT, Report))
        self._figures.written += int(seen.get["rows"])

    def _append(self, rows: DataFrame, number: int) -> None:
        writer = rows.write.format(self._options.format).options(**self._options.options)
        if self._options.format not in FILES:
            # Delta leaves out a batch that it has.
            once = {"txnAppId": f"oplog-pipe-{self._id:012x}", "txnVersion": str(number)}
            writer.options(**once).mode("append").save(self._path)
            return
        # Two drivers may write one batch. Readers pass over names with an underscore.
        part = f"{self._path}/_part-{self._work.run}"
        folder = f"{self._path}/{BATCH}={self._id:012x}-{number:09d}"
        writer.mode("overwrite").save(part)
        folders = Folders(rows.sparkSession, self._path)
        folders.delete(folder)
        folders.rename(part, folder)
        folders.delete_all(f"{self._path}/_part-*")

    def _merge(self, result: DataFrame, rows: DataFrame, others: list[Row]) -> None:
        if self._mirror is None:
            spark = result.sparkSession
            self._mirror = MirrorTable(spark, self._path, self._work, self._id)
        copies = ends_of(others)
        self._mirror.merge(rows, copies)
        for source in copies:
            logger.info("sink %r: the copy of %s is complete", self._work.sink.name, source)
