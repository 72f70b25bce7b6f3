"""A table of Spark with the newest row of each object."""

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from oplog_pipe.errors import ConfigError, SinkError
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.spark.folders import Folders
from oplog_pipe.spark.select import Kept, analysing, problem
from oplog_pipe.spark.tables.mark import Mark, check_types, older_checkpoint
from oplog_pipe.spark.tables.swap import Swap
from oplog_pipe.spark.tasks.rows import ends_of
from oplog_pipe.spark.tasks.work import SinkWork

# A column while the table is written.
_NUMBER = "__oplog_number"


class MirrorTable:
    """Each batch writes the table anew. Starts at the first one, and raises ConfigError then.

    ``id``: of the checkpoint.
    """

    def __init__(self, folders: Folders, path: str, work: SinkWork, id: int) -> None:
        assert isinstance(work.sink.options, FormatOptions)
        self._options = work.sink.options
        self._work = work
        self._id = id
        self._path = path
        self._swap = Swap(folders, path, work)
        self._swap.start()
        self.part = self._swap.part
        self._mark = Mark(work.owner, id)

    def has(self, number: int, planned: Sequence[str]) -> bool:
        """Return False. Raises ConfigError if the table has later batches, or lacks some."""
        present = self._swap.present()
        if present is not None and present.checkpoint == self._id:
            is_whole = present.batch <= number
        else:
            # With ``start: end`` the path may have changed.
            is_whole = number == 0 or self._work.sink.start == "end"
        if not is_whole:
            raise older_checkpoint(self._path, self._work)
        return False

    def write(self, rows: DataFrame, kept: Kept, number: int) -> None:
        """Write rows over those of the table. ``rows``: a result over what is kept of a batch."""
        self._judge(rows, kept)
        copies = ends_of(kept.others)
        present = self._swap.present()
        rows = rows.withColumn("version", F.col("version").cast("bigint"))
        columns = dict(rows.drop("op").dtypes)
        everything = rows
        is_other = present is not None and present.checkpoint != self._id
        # A new checkpoint begins with a copy of everything: the old rows may have other columns.
        is_anew = is_other and copies.keys() == self._work.sources.keys()
        if present is not None and not is_anew:
            check_types(present.columns, columns, self._work.place)
            before = self._read(rows)
            everything = before.withColumn("op", F.lit("insert")).unionByName(rows)
        with analysing(self._work.place):
            found = self._newest(everything, copies)
            writer = found.write.format(self._options.format).options(**self._options.options)
            writer.mode("overwrite").save(self.part.rows)
        next_ = 1 if present is None else present.number + 1
        self._mark = Mark(self._work.owner, self._id, next_, number, self._work.run, columns)

    def publish(self, number: int, planned: Sequence[str]) -> None:
        self._swap.publish(self._mark)

    def _newest(self, rows: DataFrame, copies: Mapping[str, int]) -> DataFrame:
        """Return the newest rows of objects that are there after the ends of copies."""
        order = [each for each in ("version", "logged", "place") if each in rows.columns]
        newest = Window.partitionBy(*self._options.merge).orderBy(*map(F.desc, order))
        found = rows.withColumn(_NUMBER, F.row_number().over(newest))
        found = found.where((F.col(_NUMBER) == 1) & (F.col("op") != "delete")).drop(_NUMBER, "op")
        for source, version in copies.items():
            found = found.where(~((F.col("source") == source) & (F.col("version") < version)))
        return found

    def _judge(self, rows: DataFrame, kept: Kept) -> None:
        for name in (*self._options.merge, "op", "version", "source"):
            if name not in rows.columns:
                raise ConfigError(
                    f"{self._work.place}.merge: the rows have no column {name}; they need op,"
                    " version, source and those of merge"
                )
        sentence = reduce(
            lambda before, name: before.when(
                F.col(name).isNull(), F.lit(f"{name} of a row is null")
            ),
            (*self._options.merge, "version", "source"),
            problem(kept, self._work),
        )
        with analysing(self._work.place):
            judged = rows.select(sentence.alias("sentence"))
        if wrong := judged.where(F.col("sentence").isNotNull()).take(1):
            raise SinkError(f"{self._work.place}.select: {wrong[0][0]}")

    def _read(self, rows: DataFrame) -> DataFrame:
        schema = rows.drop("op").schema
        reader = rows.sparkSession.read.format(self._options.format)
        return reader.options(**self._options.options).schema(schema).load(self._path)
