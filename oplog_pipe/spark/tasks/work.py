"""The work of a sink's tasks: they filter and change messages, and write them."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from oplog_kit.logs import Format, configure
from oplog_pipe.deliver.factory import build
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.deliver.steps import Steps, build_steps
from oplog_pipe.errors import PipeError
from oplog_pipe.message import namespace_filter
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.base import Fenced, Mirroring, Owned, Sink
from oplog_pipe.sinks.parts.fence import Fence
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.spark.tasks.changing import Changing
from oplog_pipe.spark.tasks.held import HELD
from oplog_pipe.spark.tasks.refusals import Refusals
from oplog_pipe.spark.tasks.rows import (
    FAILURE,
    REPORT,
    Failure,
    Report,
    Row,
    batch_of,
    rows_of,
    told,
)
from oplog_pipe.spark.tasks.writing import Writing

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class SinkWork:
    """What each task of a query knows. It travels with the task.

    - ``pipe``: name of the pipe. ``root``: folder of the settings file on the driver.
    - ``place``: of the sink in the file, such as ``sinks[0]``.
    - ``sources``: the regular expression of each source's namespaces.
    - ``run``: id of this run of the query: workers keep its sink until the next one.
    - ``fence``: where the batch stands; None: the sink has none. ``newest``: the largest version
      that the checkpoint can have given up to this batch.
    """

    pipe: str
    root: Path
    place: str
    sink: SinkSettings
    sources: dict[str, str]
    run: str
    log_format: Format = "text"
    fence: Fence | None = None
    newest: int = 0

    def log(self) -> None:
        """Let a process of Spark log as the driver does."""
        if not logging.getLogger().handlers:
            configure(self.log_format, debug=False)

    @property
    def owner(self) -> str:
        return f"{self.pipe}/{self.sink.name}"

    def at(self, fence: Fence | None, newest: int) -> "SinkWork":
        return replace(self, fence=fence, newest=newest)

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Raises SinkError for a row that is no message."""
        for row in rows_of(batch):
            if self.sink.select is not None:
                row.check()
            yield row

    def steps(self) -> Steps:
        return build_steps(self.sink, self.root, self.place)


class OpenSink:
    """A sink with its owner. Raises ConfigError."""

    def __init__(self, work: SinkWork) -> None:
        self._newest = 0
        self.sink: Sink = build(work.sink.without_select(), work.root)
        if isinstance(self.sink, Owned):
            self.sink.own(Owner(work.pipe, work.sink.name, lambda: self._newest))
        if isinstance(self.sink, Mirroring):
            self.sink.mirror(work.owner)
        self._is_open = False

    def open(self) -> None:
        """Open the sink unless it is open. Raises SinkError."""
        if not self._is_open:
            self.sink.open()
            self._is_open = True

    def stand_at(self, fence: Fence | None, newest: int) -> None:
        """``newest``: see ``SinkWork``."""
        self._newest = newest
        if fence is not None and isinstance(self.sink, Fenced):
            self.sink.stand_at(fence)

    def close(self) -> None:
        self.sink.close()


def keep(work: SinkWork, batches: Batches) -> Batches:
    """Leave out what the namespaces of source and sink do not match."""
    matches = _Matches(work)
    bounds: list[int] = []
    for batch in batches:
        rows = [row for row in rows_of(batch) if not row.is_message or matches(row)]
        versions = [row.version or 0 for row in rows if row.is_message] + bounds
        bounds = [min(versions), max(versions)] if versions else []
        yield batch_of(rows)
    first, last = bounds or (None, None)
    yield batch_of([told(REPORT, Report(filtered=matches.dropped, first=first, last=last))])


def change(work: SinkWork, batches: Batches) -> Batches:
    """Filter and change messages, in any order."""
    work.log()
    clock = RetryClock()
    refusals = Refusals(work.sink, clock)
    matches = _Matches(work, is_past=work.sink.select is not None)
    last: list[Row] = []
    changing: Changing | None = None
    try:
        with HELD.use(f"{work.owner} steps", work.run, work.steps) as steps:
            changing = Changing(work.sink, steps, refusals, clock)
            for batch in batches:
                rows = list(work.rows_of(batch))
                messages = [row for row in rows if row.is_message and matches(row)]
                found = [row for row in rows if not row.is_message]
                found += changing(messages)
                yield batch_of([*found, *refusals.take()])
    except PipeError as error:
        last = [_failure(error)]
    filtered = matches.dropped + (0 if changing is None else changing.filtered)
    report = Report(filtered=filtered, retries=refusals.retries)
    yield batch_of([*refusals.take(), *last, told(REPORT, report)])


def write(work: SinkWork, batches: Batches) -> Batches:
    """Write messages, sorted by their ids, then versions. Yield what is none, and a report."""
    work.log()
    refusals = Refusals(work.sink, RetryClock())
    is_past = work.sink.select is not None or bool(work.sink.transforms)
    matches = _Matches(work, is_past=is_past)
    last: list[Row] = []
    writing: Writing | None = None
    try:
        with HELD.use(work.owner, work.run, partial(OpenSink, work)) as held:
            for batch in batches:
                others: list[Row] = []
                for row in work.rows_of(batch):
                    if not row.is_message:
                        others.append(row)
                    elif matches(row):
                        if writing is None:
                            refusals.retry(held.open)
                            held.stand_at(work.fence, work.newest)
                            writing = Writing(work.sink, held.sink, refusals)
                        writing.add(row)
                others += refusals.take()
                if others:
                    yield batch_of(others)
            if writing is not None:
                writing.flush()
    except PipeError as error:
        last = [_failure(error)]
    yield batch_of([*refusals.take(), *last, told(REPORT, _report(writing, refusals, matches))])


class _Matches:
    """Whether the namespaces of source and sink match a message. ``dropped``: others.

    ``is_past``: the messages have been through the filters, and may have changed since.
    """

    def __init__(self, work: SinkWork, *, is_past: bool = False) -> None:
        self.dropped = 0
        self._is_past = is_past
        self._sink = namespace_filter(work.sink.namespace)
        self._sources = {name: namespace_filter(each) for name, each in work.sources.items()}

    def __call__(self, row: Row) -> bool:
        if self._is_past:
            return True
        namespace = row.namespace or ""
        if self._sources[row.source or ""](namespace) and self._sink(namespace):
            return True
        self.dropped += 1
        return False


def _report(writing: Writing | None, refusals: Refusals, matches: _Matches) -> Report:
    task = TaskContext.get()
    return Report(
        written=0 if writing is None else writing.written,
        filtered=matches.dropped,
        retries=refusals.retries,
        attempt=0 if task is None else task.attemptNumber(),
        stage=-1 if task is None else task.stageId(),
    )


def _failure(error: PipeError) -> Row:
    return told(FAILURE, Failure(type(error).__name__, str(error)))
