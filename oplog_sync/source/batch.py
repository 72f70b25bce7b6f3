"""Batch reads."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oplog_sync.arrow import rare_collections
from oplog_sync.backend import Range
from oplog_sync.source.agent.origin import AgentOrigin
from oplog_sync.source.columns import WITHOUT_DATA, arrow_batch
from oplog_sync.source.options import SourceOptions
from oplog_sync.source.origin import Origin, ToArrow
from oplog_sync.source.place import Placed


@dataclass
class StatesPart(InputPartition):
    """The states of one task; None is an empty table."""

    rows: Range | None


class BatchReader(Placed, DataSourceReader):
    """Reads what is in the log when the query is planned."""

    def __init__(self, options: SourceOptions, origin: Origin, to_arrow: ToArrow) -> None:
        super().__init__(options)
        self._origin = origin
        self._to_arrow = to_arrow

    def partitions(self) -> Sequence[InputPartition]:
        with closing(self._origin):
            start = self._origin.start("oldest")
            end = self._origin.latest(start, None)
            is_empty = end == start or self._origin.is_past(start, end)
            return ([] if is_empty else self._origin.plan(start, end)) or [StatesPart(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition == StatesPart(None):
            return
        self.check_place()
        with rare_collections():
            for rows in self._origin.rows(partition):
                yield self._to_arrow(rows)


class StatesReader(Placed, DataSourceReader):
    """Reads the states as they are when their task reads them. An agent sends the live ones."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options)
        self._options = options
        self._schema = schema
        self._wanted = options.wanted()._replace(data=not WITHOUT_DATA.issuperset(schema.names))

    def partitions(self) -> Sequence[InputPartition]:
        if self._options.agent:
            return AgentOrigin(self._options).copy()
        return self._plan() or [StatesPart(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, StatesPart):
            if partition.rows is None:
                return
            self.check_place()
            read = self._options.backend().states(partition.rows, self._wanted)
        else:
            read = AgentOrigin(self._options).rows(partition)
        with rare_collections():
            for rows in read:
                yield arrow_batch(rows, self._schema)

    def _plan(self) -> Sequence[InputPartition]:
        backend = self._options.backend()
        backend.check()
        return [StatesPart(part) for part in backend.state_ranges(self._options.partition_rows)]
