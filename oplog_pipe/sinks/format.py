"""A table of Spark in the place of a system. Only a pipe on Spark has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oplog_pipe.errors import ConfigError
from oplog_pipe.model.fields import Field, Kind
from oplog_pipe.model.options import SinkOptions
from oplog_pipe.sinks.base import Sink

FORMAT = Field(
    "format",
    Kind.TEXT,
    "Format of Spark, such as `parquet`, in the place of `type`. Only for `oplog-pipe spark`.",
    required="give a format of Spark, such as parquet",
)
PATH = Field(
    "path",
    Kind.URL,
    "Folder of the table, such as `tables/history` or `s3a://bucket/history`. A relative one "
    "begins at the folder of the settings file.",
)
OPTIONS = Field("options", Kind.SECRET_MAPPING, "Options of the format. Their values are hidden.")


@dataclass(frozen=True)
class FormatOptions(SinkOptions):
    """``merge``: columns that tell rows apart; empty: the table keeps every row."""

    settings = (
        FORMAT,
        PATH._replace(required="give the folder of the table"),
        OPTIONS,
        Field(
            "merge",
            Kind.STRINGS,
            "Columns, such as `[type, id]`: the table, `parquet` or `orc`, has the newest row of "
            "each object. Without it the table is a history of all rows.",
        ),
    )
    identity = ("path", "merge")
    exclusive = "path"

    format: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    merge: tuple[str, ...] = ()

    def sink(self, namespace: str, root: Path) -> Sink:
        raise ConfigError("format: a table of Spark is written by `oplog-pipe spark` only")
