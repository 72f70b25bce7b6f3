"""The sink for Elasticsearch and OpenSearch: its options."""

from dataclasses import dataclass, field
from pathlib import Path

from oplog_pipe.model import checks
from oplog_pipe.model.fields import ID, TLS, USER, Field, Kind, template, timeout
from oplog_pipe.model.options import SinkOptions, TlsOptions
from oplog_pipe.sinks.base import Sink


@dataclass(frozen=True)
class ElasticsearchOptions(SinkOptions):
    """Elasticsearch 7.10 and later, OpenSearch. ``create``: create a missing index."""

    type_name = "elasticsearch"
    aliases = ("opensearch",)
    hints = ("elastic", "es")
    settings = (
        Field(
            "urls",
            Kind.URLS,
            "Addresses of nodes of Elasticsearch or OpenSearch.",
            check=checks.http_url,
            required="give the addresses of nodes, such as [http://localhost:9200]",
            hints=("nodes",),
        ),
        template("index", "Index, with `{namespace}`.")._replace(hints=("target",)),
        ID,
        *USER,
        Field("api_key", Kind.SECRET, "API key. Excludes `user`.", hints=("token",)),
        Field("create", Kind.FLAG, "Create an index that is missing."),
        timeout("Time for one request."),
        *TLS,
    )
    identity = ("index", "id")
    place = "index"

    urls: tuple[str, ...] = field(repr=False)
    index: str = "{namespace}"
    id: str = "{id}"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    create: bool = True
    timeout: float = 30.0
    tls: TlsOptions = field(default_factory=TlsOptions)

    def sink(self, namespace: str, root: Path) -> Sink:
        from oplog_pipe.sinks.search.sink import ElasticsearchSink

        return ElasticsearchSink(self, namespace)
