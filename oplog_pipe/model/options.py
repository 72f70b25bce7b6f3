"""The options of each type of sink, as frozen values. Times are seconds, sizes bytes.

Templates (``index``, ``table``, ``collection``, ``id``) may hold ``{namespace}`` and ``{id}``. One
object must have one place: a name without ``{namespace}`` asks for an ``id`` with it, unless the
sink's ``namespace`` is one literal, such as ``^video$``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class TlsOptions:
    """PEM files. ``ca_file`` None: the usual authorities."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class FileOptions:
    """``rotate_bytes``: a file of this size is set aside, and a new one begins. 0: never."""

    path: str
    rotate_bytes: int = 0


@dataclass(frozen=True)
class HttpOptions:
    """``format``: a JSON array, or NDJSON. ``copies``: tell the receiver when copies begin and end.

    ``headers``: sent with each request; they may hold secrets.
    """

    url: str = field(repr=False)
    format: Literal["json", "ndjson"] = "json"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0
    copies: bool = False
    tls: TlsOptions = TlsOptions()


@dataclass(frozen=True)
class PostgresOptions:
    """``columns``: column -> path in ``data``, such as ``owner.name``; empty: one column ``data``.

    ``create``: create the table if it is missing. ``table`` may be ``schema.table``.
    """

    url: str = field(repr=False)
    table: str = "{namespace}"
    id: str = "{id}"
    columns: Mapping[str, str] = field(default_factory=dict)
    create: bool = True
    timeout: float = 30.0


@dataclass(frozen=True)
class ElasticsearchOptions:
    """Elasticsearch 7.10 and later, OpenSearch. ``create``: create a missing index."""

    urls: tuple[str, ...] = field(repr=False)
    index: str = "{namespace}"
    id: str = "{id}"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    create: bool = True
    timeout: float = 30.0
    tls: TlsOptions = TlsOptions()


@dataclass(frozen=True)
class MongodbOptions:
    url: str = field(repr=False)
    database: str
    collection: str = "{namespace}"
    id: str = "{id}"
    timeout: float = 30.0


@dataclass(frozen=True)
class OplogOptions:
    """``log``: ``system/oplog`` or a topic, which must exist."""

    agents: tuple[str, ...] = field(repr=False)
    log: str = "system/oplog"
    password: str | None = field(default=None, repr=False)
    timeout: float = 10.0
    tls: TlsOptions = TlsOptions()


@dataclass(frozen=True)
class CustomOptions:
    """``target``: ``module:Class``. ``arguments``: its keyword arguments, from ``options``."""

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)


SinkOptions = (
    FileOptions
    | HttpOptions
    | PostgresOptions
    | ElasticsearchOptions
    | MongodbOptions
    | OplogOptions
    | CustomOptions
)
