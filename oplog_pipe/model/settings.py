"""The settings of a pipe, as frozen values. Times are seconds, sizes bytes.

Meanings and ranges: ``oplog_pipe.config.tables``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from oplog_pipe.model.options import SinkOptions, TlsOptions

OPLOG = "system/oplog"


@dataclass(frozen=True)
class SourceSettings:
    """One log, and its agents on one store."""

    name: str
    agents: tuple[str, ...] = field(repr=False)
    log: str = OPLOG
    password: str | None = field(default=None, repr=False)
    namespace: str = ".*"
    on_gap: Literal["stop", "continue"] = "stop"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    store: str | None = field(default=None, repr=False)
    tls: TlsOptions = field(default_factory=TlsOptions)


@dataclass(frozen=True)
class FunctionStep:
    """``function``: ``module:function``, called with a Message; returns a Message, or None."""

    function: str
    namespace: str = ".*"


@dataclass(frozen=True)
class FetchStep:
    """Replace ``data`` by the JSON document at ``data["ref"]``. Deletes pass. 404 and 410 drop."""

    namespace: str = ".*"
    concurrency: int = 8
    timeout: float = 10.0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsOptions = field(default_factory=TlsOptions)
    hosts: tuple[str, ...] | None = None


@dataclass(frozen=True)
class BatchLimits:
    """A batch is written when one of these is reached."""

    messages: int = 1000
    bytes: int = 1 << 20
    time: float = 0.1


@dataclass(frozen=True)
class TableSettings:
    """A table of Spark that ``select`` reads."""

    name: str
    format: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class SinkSettings:
    """``type``: as in the file, such as ``postgres`` or ``module:Class``, or a format of Spark."""

    name: str
    type: str
    options: SinkOptions
    namespace: str = ".*"
    transforms: tuple[FunctionStep | FetchStep, ...] = ()
    batch: BatchLimits = BatchLimits()
    retry_for: float = 60.0
    dead_letter: str | None = None
    dead_letter_limit: int = 20
    on_failure: Literal["stop", "park"] = "stop"
    start: Literal["end", "copy"] | None = None
    at_least_once: bool = False
    tables: tuple[TableSettings, ...] = ()
    select: str | None = None

    def without_select(self) -> "SinkSettings":
        """Return the settings of the sink behind the query."""
        return replace(self, tables=(), select=None)


@dataclass(frozen=True)
class PipeSettings:
    """``root``: folder of the settings file. Modules are imported from it."""

    dir: Path
    root: Path
    sources: tuple[SourceSettings, ...]
    sinks: tuple[SinkSettings, ...]
    max_segment_bytes: int = 1 << 30
    max_log_bytes: int | None = None
    offset_flush: float = 1.0
    shutdown_timeout: float = 30.0
    listen: str | None = None
    name: str | None = None

    @property
    def segment_bytes(self) -> int:
        """Size at which a segment is closed. Only closed ones give room back."""
        if self.max_log_bytes is None:
            return self.max_segment_bytes
        return min(self.max_segment_bytes, self.max_log_bytes // 4)
