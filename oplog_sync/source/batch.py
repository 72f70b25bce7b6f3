"""Batch reads of states and operations."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from oplog_sync.backend import Range, Wanted, split
from oplog_sync.source.columns import arrow_batch
from oplog_sync.source.options import SourceOptions
from oplog_sync.source.pushdown import wanted_by

# Columns made without the operation's JSON text.
_WITHOUT_DATA = {"event_id", "offset", "event", "key", "type", "id", "logged"}


@dataclass
class BatchPart(InputPartition):
    """The rows of one task; None is an empty table."""

    rows: Range | None


class BatchReader(DataSourceReader):
    """Reads states as they are when their task reads them, or the operations at planning."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted(data=not _WITHOUT_DATA.issuperset(schema.fieldNames()))

    def partitions(self) -> Sequence[InputPartition]:
        backend, width = self._options.backend(), self._options.partition_rows
        backend.check()
        if self._options.table == "states":
            ranges = backend.state_ranges(width)
        else:
            located = backend.locate(0)
            oldest, head = located.oldest, located.head.offset
            ranges = split((oldest.offset - 1, head), width) if oldest else []
        return [BatchPart(part) for part in ranges] or [BatchPart(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BatchPart)
        if partition.rows is None:
            return
        backend = self._options.backend()
        read = backend.states if self._options.table == "states" else backend.operations
        for rows in read(partition.rows, self._wanted):
            yield arrow_batch(rows, self._schema)


class PushingReader(BatchReader):
    """Lets the store apply Spark's filters. Spark checks the rows again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted = wanted_by(filters)._replace(data=self._wanted.data)
        return filters
