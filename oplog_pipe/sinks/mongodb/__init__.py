"""The sink for MongoDB, through PyMongo: its options."""

from dataclasses import dataclass, field
from pathlib import Path

from oplog_pipe.model.fields import ID, Field, Kind, template, timeout
from oplog_pipe.model.options import SinkOptions
from oplog_pipe.sinks.base import Sink


def _check_url(text: str) -> None:
    if not text.startswith(("mongodb://", "mongodb+srv://")):
        raise ValueError("must be an address such as mongodb://host:27017")


@dataclass(frozen=True)
class MongodbOptions(SinkOptions):
    type_name = "mongodb"
    hints = ("mongo",)
    settings = (
        Field(
            "url",
            Kind.URL,
            "Servers, such as `mongodb://host:27017`.",
            check=_check_url,
            required="give the servers, such as mongodb://host:27017",
        ),
        Field(
            "database",
            Kind.TEXT,
            "Name of the database.",
            required="give the name of the database",
        ),
        template("collection", "Collection, with `{namespace}`.")._replace(hints=("target",)),
        ID,
        timeout("Time for one write."),
    )
    identity = ("database", "collection", "id")
    place = "collection"

    url: str = field(repr=False)
    database: str
    collection: str = "{namespace}"
    id: str = "{id}"
    timeout: float = 30.0

    def sink(self, namespace: str, root: Path) -> Sink:
        from oplog_pipe.sinks.mongodb.sink import MongodbSink

        return MongodbSink(self, namespace)
