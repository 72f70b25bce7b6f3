"""Batch reads of a topic."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from oplog_sync.topics.columns import TopicColumns
from oplog_sync.topics.origin import TopicOrigin


class TopicBatchReader(DataSourceReader):
    """Reads the messages that are in the topic when the query is planned."""

    def __init__(self, origin: TopicOrigin, columns: TopicColumns) -> None:
        self._origin = origin
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        start = self._origin.start("oldest")
        end = self._origin.latest(start, None)
        return self._origin.plan(start, end) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if type(partition) is InputPartition:  # there is nothing to read
            return
        for messages in self._origin.rows(partition):
            yield self._columns.batch(messages)
