"""A table of Spark with the newest row of each object."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from oplog_pipe.errors import ConfigError, SinkError
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.sinks.parts.fence import other_driver
from oplog_pipe.spark.folders import Folders, Mark
from oplog_pipe.spark.tasks.rows import OPS
from oplog_pipe.spark.tasks.work import SinkWork


class MirrorTable:
    """Each batch writes the table anew beside the old one.

    ``path``: of the table. Its neighbours are ``PATH.next-RUN``, ``PATH.before``, which readers of
    the old one may still use, and ``PATH.driver``, which names the run that writes. ``id``: of the
    checkpoint. Raises ConfigError for a folder with something else.
    """

    def __init__(self, spark: SparkSession, path: str, work: SinkWork, id: int) -> None:
        assert isinstance(work.sink.options, FormatOptions)
        self._options = work.sink.options
        self._work = work
        self._spark = spark
        self._mark = Mark(work.owner, id)
        self._folders = Folders(spark, path)
        self._path = path
        self._next = f"{path}.next-{work.run}"
        self._before, self._driver = f"{path}.before", f"{path}.driver"
        self._recover()
        self._check()
        self._folders.delete_all(f"{path}.next-*")
        self._folders.write(self._driver, work.run.encode())

    def merge(self, rows: DataFrame, copies: Mapping[str, int]) -> None:
        """Write rows over the table. ``copies``: versions of the ends of copies, by source."""
        self._judge(rows)
        rows = rows.withColumn("version", F.col("version").cast("bigint"))
        everything = rows
        mark = self._folders.mark_of(self._path) if self._folders.exists(self._path) else None
        # A new checkpoint begins with a copy of everything: the old rows may have other columns.
        is_anew = mark != self._mark and copies.keys() == self._work.sources.keys()
        if mark is not None and not is_anew:
            before = self._read(rows)
            everything = before.withColumn("op", F.lit("insert")).unionByName(rows)
        order = [each for each in ("version", "logged", "place") if each in rows.columns]
        newest = Window.partitionBy(*self._options.merge).orderBy(*map(F.desc, order))
        found = everything.withColumn("_number", F.row_number().over(newest))
        found = found.where("_number = 1 AND op != 'delete'").drop("_number", "op")
        for source, version in copies.items():
            found = found.where(~((F.col("source") == source) & (F.col("version") < version)))
        writer = found.write.format(self._options.format).options(**self._options.options)
        writer.mode("overwrite").save(self._next)
        self._folders.mark(self._next, self._mark)
        self._swap()

    def _judge(self, rows: DataFrame) -> None:
        for name in (*self._options.merge, "op", "version", "source"):
            if name not in rows.columns:
                raise ConfigError(
                    f"{self._work.place}.merge: the rows have no column {name}; they need op,"
                    " version, source and those of merge"
                )
        wrong = F.coalesce(~F.col("op").isin(*OPS), F.lit(True))
        for name in (*self._options.merge, "version", "source"):
            wrong |= F.col(name).isNull()
        if rows.where(wrong).limit(1).count():
            raise SinkError(
                f"{self._work.place}: op of a row is not insert, update or delete, or a column of"
                " merge, version or source is null"
            )

    def _read(self, rows: DataFrame) -> DataFrame:
        schema = rows.drop("op").schema
        reader = self._spark.read.format(self._options.format).options(**self._options.options)
        return reader.schema(schema).load(self._path)

    def _swap(self) -> None:
        folders = self._folders
        if folders.read(self._driver) != self._work.run:
            folders.delete(self._next)
            raise other_driver(self._work.owner)
        if folders.exists(self._path):
            folders.delete(self._before)
            folders.rename(self._path, self._before)
        folders.rename(self._next, self._path)

    def _recover(self) -> None:
        """Bring the table back that a driver has left between two changes of names."""
        folders = self._folders
        if folders.exists(self._path) or not folders.exists(self._before):
            return
        if folders.mark_of(self._before) is not None:
            folders.rename(self._before, self._path)

    def _check(self) -> None:
        """Raise ConfigError if a folder has something else: the next batches would remove it."""
        for path in (self._path, self._before):
            if self._folders.exists(path) and not self._folders.is_empty(path):
                mark = self._folders.mark_of(path)
                if mark is None or mark.owner != self._mark.owner:
                    whose = "files of others" if mark is None else f"a table of {mark.owner!r}"
                    raise ConfigError(f"{self._work.place}.path: {path} has {whose}")
