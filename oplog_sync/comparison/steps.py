"""The comparison in two steps: a survey of narrow rows, then the whole rows of the open objects."""

from types import TracebackType
from typing import NamedTuple, Self

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oplog_sync.backend import Backend
from oplog_sync.comparison import states
from oplog_sync.comparison.diff import DUPLICATE, OPEN, compare, settled, survey
from oplog_sync.dump import rows
from oplog_sync.errors import DumpError
from oplog_sync.progress import RowProgress

# Up to this many open objects are looked up by key. A worker keeps their keys in memory.
FEW = 500_000
# Up to this many states are compared as a whole with a small dump: at most 1.6 GB.
FEW_STATES = 25_000


class Look(NamedTuple):
    """The first facts. ``newest``: time in the dump in microseconds since 1970, None: no row.

    ``invalid``: rows. ``open``: objects with a possible correction.
    """

    newest: int | None
    invalid: int
    open: int


class Comparison:
    """Compares the rows of a dump with the states of a store, None: there is no store.

    ``is_small``: the dump is. Its DataFrames are persisted until the block ends.
    """

    def __init__(
        self,
        spark: SparkSession,
        raw: DataFrame,
        backend: Backend | None,
        types: frozenset[str],
        *,
        is_small: bool = False,
    ) -> None:
        self._spark = spark
        self._raw = raw
        self._backend = backend
        self._types = types
        self.progress = RowProgress(spark.sparkContext)
        self._persisted: list[DataFrame] = []
        # Few whole rows are joined sooner than two queries are planned.
        self._is_direct = backend is None or (is_small and backend.state_count() <= FEW_STATES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for each in self._persisted:
            each.unpersist()

    def look(self) -> Look:
        """Read both sides."""
        self._first = self._persist(self._compare_all() if self._is_direct else self._survey())
        action, count = F.col("action"), F.col("count")
        found = self._first.agg(
            F.max("in_dump"),
            F.coalesce(F.sum(F.when(action == "invalid", count)), F.lit(0)),
            F.count_if(action == OPEN),
        ).first()
        assert found is not None
        self._open: int = found[2]
        return Look(*found)

    def rows(self) -> DataFrame:
        """Return the result of ``compare``. ``look`` comes first."""
        if self._is_direct:
            return self._first
        if self._open > FEW:
            return self._persist(self._compare_all())
        counts = settled(self._first)
        if not self._open:
            return counts
        assert self._backend is not None
        opened = self._persist(self._compare_open(self._backend))
        self._refuse_changed(opened)
        return opened.unionAll(counts)

    def _survey(self) -> DataFrame:
        assert self._backend is not None
        known = states.read_states(
            self._spark, self._backend, self._types, states.NARROW, self.progress.states
        )
        dump = rows.normalised(self._raw, self._types, rows.NARROW, None, self.progress.rows)
        return survey(known, dump)

    def _compare_open(self, backend: Backend) -> DataFrame:
        opened = self._first.where(F.col("action") == OPEN)
        in_dump = opened.where(F.col("in_dump").isNotNull()).select("key").toArrow().column(0)
        keys = self._spark.sparkContext.broadcast(frozenset(in_dump.to_pylist()))
        # Sorted: the store reads each page of its index once.
        known = opened.where("known").select("key").sortWithinPartitions("key")
        dump = rows.normalised(self._raw, self._types, rows.WHOLE, keys, self.progress.rows)
        return compare(states.find_states(known, backend), dump)

    def _refuse_changed(self, opened: DataFrame) -> None:
        """Raise DumpError if the second read of the dump lacks an object of the first, or a time.

        Otherwise an object that the dump has would count as deleted.
        """
        is_object = F.col("in_dump").isNotNull() & ~F.col("action").isin(DUPLICATE, "invalid")
        again = opened.agg(
            F.coalesce(F.sum(F.when(is_object, F.col("count"))), F.lit(0)), F.max("in_dump")
        ).first()
        first = self._first.where((F.col("action") == OPEN) & F.col("in_dump").isNotNull())
        before = first.agg(F.count("*"), F.max("in_dump")).first()
        if again != before:
            raise DumpError("it was changed or replaced while it was read; run the job again")

    def _compare_all(self) -> DataFrame:
        if self._backend is None:
            known = states.no_states(self._spark, states.WHOLE)
        else:
            known = states.read_states(
                self._spark, self._backend, self._types, states.WHOLE, self.progress.states
            )
        dump = rows.normalised(self._raw, self._types, rows.WHOLE, None, self.progress.rows)
        return compare(known, dump)

    def _persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame)
        return frame.persist(StorageLevel.DISK_ONLY)
