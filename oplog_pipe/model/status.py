"""A pipe as it is now, as values: for ``/status``, metrics, progress lines and the command."""

from typing import Literal

import msgspec

from oplog_pipe.model.exits import PROGRAM

GAVE_UP = "gave up its place, because the log had reached max_log_bytes"
WAITS_FOR_COPY = (
    "it waits for its next message, and gets a copy once it has written one; to copy at once, stop"
    f" the pipe, run `{PROGRAM} copy`, and start it"
)
"""Says what a sink does that has given up its place."""


class SourceStatus(msgspec.Struct, frozen=True):
    """- ``phase``: ``copy`` from ``reset`` to ``live``; ``changes`` while states changed since the
      position come; else ``sync``.
    - ``received``: messages since the start. ``filtered``: those that the namespace does not match.
    - ``copied``, ``copy_total``: of the present or last copy. The agent gives the total, or None.
    - ``newest_ms``: timestamp of the last message, in ms since 1970. ``error``: has no secrets.
    """

    name: str
    log: str
    phase: Literal["copy", "changes", "sync"] = "sync"
    connected: bool = False
    position: str = ""
    received: int = 0
    filtered: int = 0
    copied: int = 0
    copy_total: int | None = None
    newest_ms: int | None = None
    error: str | None = None


class SinkStatus(msgspec.Struct, frozen=True):
    """- ``phase``: ``recovery``: one message at a time up to the end the log had at the start;
      ``single``: with ``--one-at-a-time``; ``parked``: failed, keeps its place and is tried again.
    - ``offset``: last acknowledged; -1: none. ``flushed``: the one on disk.
    - ``lag``: entries to be acknowledged. ``lag_seconds``: age of the oldest one; 0: there is none.
    - ``written``, ``filtered``, ``dead``: messages since the start.
    - ``error``: the present transient failure, or the reason for the stop.
    - ``not_whole``: sources whose last copy lacked messages for this sink. Its end removed nothing.
    - ``notice``: for an operator, besides failures, such as messages on their way round.
    - ``copy_due``: it has given up its place, and gets a copy once it has written a message.
    """

    name: str
    type: str
    phase: Literal["recovery", "single", "bulk", "parked", "stopped"]
    offset: int = -1
    flushed: int = -1
    lag: int = 0
    lag_seconds: float = 0.0
    written: int = 0
    filtered: int = 0
    dead: int = 0
    retries: int = 0
    error: str | None = None
    not_whole: list[str] = []
    notice: str | None = None
    copy_due: bool = False


class LogStatus(msgspec.Struct, frozen=True):
    """- ``oldest``: None if the log is empty. ``end``: offset of the next entry.
    - ``compacted``: up to this offset entries may be missing; -1: none is.
    - ``max_bytes``: bound of ``bytes``; None: no bound.
    - ``waits``: why the sources wait until there is room; None: they do not wait.
    """

    oldest: int | None
    end: int
    bytes: int
    segments: int
    compacted: int
    max_bytes: int | None = None
    waits: str | None = None


class PipeStatus(msgspec.Struct, frozen=True):
    """``folder``: path of ``dir`` on the machine of the pipe. ``log``: None: the pipe is on Spark.

    On Spark it has no sources, and the offset of a sink is the number of its last batch.
    """

    version: str
    uptime_seconds: float
    log: LogStatus | None
    sources: list[SourceStatus]
    sinks: list[SinkStatus]
    folder: str = ""
