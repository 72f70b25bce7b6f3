"""A sink that is a table of Spark: a history of all rows, or the newest row of each object."""

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from oplog_pipe.errors import BrokenBatchError, ConfigError, PipeError
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.sinks.parts.fence import other_driver
from oplog_pipe.spark.batch import SinkFigures
from oplog_pipe.spark.place import located
from oplog_pipe.spark.rules import FILES
from oplog_pipe.spark.select import kept, messages, selected
from oplog_pipe.spark.stream import numbered
from oplog_pipe.spark.tasks.rows import OPS, REPORT, Report, Row, ends_of, told_of
from oplog_pipe.spark.tasks.work import SinkWork
from oplog_sync.failure import SPARK_ERRORS, reason
from oplog_sync.jvm import hadoop, jvm

BATCH = "oplog_batch"
"""The partition of a history: a batch that is repeated replaces itself."""

logger = logging.getLogger("oplog_pipe")


class TableBatches:
    """Writes the batches of one query. Spark calls it with each, one after another.

    ``id``: of the checkpoint.
    """

    retrying: str | None = None

    def __init__(self, work: SinkWork, figures: SinkFigures, id: int) -> None:
        assert isinstance(work.sink.options, FormatOptions)
        self.error: PipeError | None = None
        self._work = work
        self._id = id
        self._options = work.sink.options
        self._path = located(self._options.path, work.root)
        self._figures = figures
        self._mirror: MirrorTable | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Raises PipeError, which ``error`` keeps: Spark wraps it."""
        try:
            self._run(rows, number)
        except PipeError as error:
            self.error = error
            raise
        except (*SPARK_ERRORS, ConnectionError) as error:
            self.error = BrokenBatchError(reason(error))
            raise self.error from error

    def close(self) -> None:
        """Do nothing: nothing is open between two batches."""

    def _run(self, rows: DataFrame, number: int) -> None:
        work = self._work
        with kept(numbered(rows), work) as found:
            result = selected(messages(found), work.sink, work.root, work.place)
            seen = Observation()
            observed = result.observe(seen, F.count(F.lit(1)).alias("rows"))
            others = [Row(*each) for each in found.where(~F.col("op").isin(*OPS)).collect()]
            if self._options.merge:
                self._merge(observed, ends_of(others))
            else:
                self._append(observed, number)
        self._figures.batch = number
        self._figures.filtered += sum(each.filtered for each in told_of(others, REPORT, Report))
        self._figures.written += int(seen.get["rows"])

    def _append(self, rows: DataFrame, number: int) -> None:
        writer = rows.write.format(self._options.format).options(**self._options.options)
        if self._options.format in FILES:
            folder = f"{self._path.rstrip('/')}/{BATCH}={self._id:012x}-{number:09d}"
            writer.mode("overwrite").save(folder)
            return
        # Delta leaves out a batch that it has.
        once = {"txnAppId": f"oplog-pipe-{self._id:012x}", "txnVersion": str(number)}
        writer.options(**once).mode("append").save(self._path)

    def _merge(self, rows: DataFrame, copies: Mapping[str, int]) -> None:
        for name in (*self._options.merge, "op", "version", "source"):
            if name not in rows.columns:
                raise ConfigError(
                    f"{self._work.place}.merge: the rows have no column {name}; they need op,"
                    " version, source and those of merge"
                )
        if self._mirror is None:
            self._mirror = MirrorTable(rows.sparkSession, self._path, self._work)
        self._mirror.merge(rows, copies)
        for source in copies:
            logger.info("sink %r: the copy of %s is complete", self._work.sink.name, source)


class MirrorTable:
    """A folder with the newest row of each object. Each batch writes it anew beside the old one.

    ``path``: of the table. Its neighbours are ``PATH.next`` and ``PATH.before``, which readers of
    the old one may still use, and ``PATH.driver``, which names the driver that writes.
    """

    def __init__(self, spark: SparkSession, path: str, work: SinkWork) -> None:
        assert isinstance(work.sink.options, FormatOptions)
        self._options = work.sink.options
        self._owner, self._run = work.owner, work.run
        self._spark = spark
        self._names = {
            name: f"{path.rstrip('/')}{name and '.'}{name}"
            for name in ("", "next", "before", "driver")
        }
        java, configuration = hadoop(spark)
        self._paths: dict[str, Any] = {
            name: java.fs.Path(each) for name, each in self._names.items()
        }
        self._files: Any = self._paths[""].getFileSystem(configuration)
        self._take_over()
        self._recover()

    def merge(self, rows: DataFrame, copies: Mapping[str, int]) -> None:
        """Write rows over the table. ``copies``: versions of the ends of copies, by source."""
        keys = list(self._options.merge)
        everything = rows
        if self._exists(""):
            before = self._read(rows)
            everything = before.withColumn("op", F.lit("insert")).unionByName(rows)
        order = [each for each in ("version", "logged", "place") if each in rows.columns]
        newest = Window.partitionBy(*keys).orderBy(*map(F.desc, order))
        found = everything.withColumn("_place", F.row_number().over(newest))
        found = found.where("_place = 1 AND op != 'delete'").drop("_place", "op")
        for source, version in copies.items():
            found = found.where(~((F.col("source") == source) & (F.col("version") < version)))
        writer = found.write.format(self._options.format).options(**self._options.options)
        writer.mode("overwrite").save(self._names["next"])
        self._swap()

    def _read(self, rows: DataFrame) -> DataFrame:
        schema = rows.drop("op").schema
        reader = self._spark.read.format(self._options.format).options(**self._options.options)
        return reader.schema(schema).load(self._names[""])

    def _swap(self) -> None:
        if self._driver() != self._run:
            raise other_driver(self._owner)
        files, paths = self._files, self._paths
        files.delete(paths["before"], True)
        if self._exists(""):
            files.rename(paths[""], paths["before"])
        files.rename(paths["next"], paths[""])

    def _recover(self) -> None:
        """Finish a change of folders that a driver has begun."""
        if not self._exists("") and self._exists("before"):
            name = "next" if self._has_all("next") else "before"
            self._files.rename(self._paths[name], self._paths[""])

    def _has_all(self, name: str) -> bool:
        java, _ = hadoop(self._spark)
        return bool(self._files.exists(java.fs.Path(f"{self._names[name]}/_SUCCESS")))

    def _exists(self, name: str) -> bool:
        return bool(self._files.exists(self._paths[name]))

    def _take_over(self) -> None:
        stream = self._files.create(self._paths["driver"], True)
        stream.write(bytearray(self._run.encode()))
        stream.close()

    def _driver(self) -> str:
        stream = self._files.open(self._paths["driver"])
        try:
            return str(jvm(self._spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
