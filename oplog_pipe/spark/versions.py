"""Versions of rows: those of a later batch are larger, from whatever source they come."""

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from oplog_pipe.message import version_of
from oplog_pipe.spark.noted import Checkpoint, NotedSettings

SPAN = 1 << 24
"""Versions of a batch. A checkpoint that is created later gives larger ones, if a batch takes more
than 16 ms."""


class Versions:
    """Of one checkpoint. A batch that is repeated has the same ones.

    ``sources``: their names, in the order of the stream.
    """

    def __init__(self, noted: NotedSettings, made: Checkpoint, sources: Sequence[str]) -> None:
        self._noted = noted
        self._begin = version_of(made.created_ms, 0)
        self._sources = sources

    def newest(self, batch: int) -> int:
        """Return the largest version up to a batch.

        Another checkpoint, or a later state of this one, may have given larger ones.
        """
        return self._begin + (batch + 1) * SPAN - 1

    def planned(self, batch: int) -> list[str]:
        """See ``NotedSettings``."""
        return self._noted.planned(batch)

    def give(self, rows: DataFrame, batch: int, planned: Sequence[str]) -> DataFrame:
        """Return the rows of a planned batch with their versions, and numbers for their order.

        The version counts back from the end of the batch: in operations, or in ms for a topic. Rows
        that are further away have the smallest one. Agents do not tell the offset of a copied
        object or of a message: then ``place`` is a number among the rows that were read. Spark
        refuses numbers of rows in a stream.
        """
        end: Column = F.col("version")
        for name, line in zip(self._sources, planned, strict=True):
            end = F.when(F.col("source") == name, F.lit(_end(line))).otherwise(end)
        behind = F.least(F.greatest(end - F.col("version"), F.lit(0)), F.lit(SPAN - 1))
        place = F.col("place")
        number = F.when(place > 0, place).otherwise(F.monotonically_increasing_id())
        version = F.lit(self.newest(batch)) - behind
        return rows.withColumns({"version": version, "place": number})


def _end(line: str) -> int:
    """Return the version behind which a source has no row of the batch."""
    if line == "-":
        return 0
    offset: Any = msgspec.json.decode(line)
    return int(offset["base"] + offset["offset"] if "base" in offset else offset["ms"])
