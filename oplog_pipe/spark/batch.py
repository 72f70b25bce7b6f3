"""The driver's part of a batch: the fence, what its tasks tell, dead letters, ends of copies."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from pyspark.sql import DataFrame

from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.retry import LeftError, Retry, RetryClock
from oplog_pipe.errors import ConfigError, PipeError, SinkError
from oplog_pipe.sinks.base import Abandoning, Fenced
from oplog_pipe.sinks.parts.fence import Fence
from oplog_pipe.spark.stream import told
from oplog_pipe.spark.tasks import rows as kinds
from oplog_pipe.spark.tasks.rows import Failure, Report, Row
from oplog_pipe.spark.tasks.work import OpenSink, SinkWork

_Told = TypeVar("_Told", Failure, Report)

logger = logging.getLogger("oplog_pipe")


@dataclass
class SinkFigures:
    """Of one sink since the start of the process. ``batch``: the last one that is written."""

    batch: int = -1
    written: int = 0
    filtered: int = 0
    dead: int = 0
    retries: int = 0
    not_whole: set[str] = field(default_factory=set)


class SinkBatches:
    """Writes the batches of one query. Spark calls it with each, one after another.

    - ``tasks``: number of writing tasks. ``letters``: None: no message may be refused.
    - ``is_new``: no driver has written a batch of the checkpoint.
    - ``stage_attempts``: returns how often a stage of Spark has begun again.
    - ``leaving``: a stop request.
    """

    def __init__(
        self,
        work: SinkWork,
        figures: SinkFigures,
        letters: DeadLetters | None,
        *,
        tasks: int,
        is_new: bool,
        stage_attempts: Callable[[int], int],
        leaving: threading.Event,
        clock: RetryClock = RetryClock(),  # noqa: B008 - it holds no state
    ) -> None:
        self.error: PipeError | None = None
        self._work = work
        self._figures = figures
        self._letters = letters
        self._tasks = tasks
        # Whether tasks of an earlier attempt may still run.
        self._has_late = not is_new
        self._stage_attempts = stage_attempts
        self._leaving = leaving
        self._clock = clock
        self._retry = Retry(work.sink.name, work.sink.retry_for, leaving, clock)
        self._held: OpenSink | None = None
        self._term = 0

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Raises PipeError, which ``error`` keeps: Spark wraps it."""
        try:
            self._run(rows, number)
        except PipeError as error:
            self.error = error
            raise

    @property
    def retrying(self) -> str | None:
        """The failure that is being tried again."""
        return self._retry.error

    def close(self) -> None:
        if self._held is not None:
            self._held.close()

    def _run(self, rows: DataFrame, number: int) -> None:
        held = self._open()
        fence = self._move(held, 2 * number)
        self._let_late_ones_end(held)
        found = told(rows, self._work.at(fence), held.sink, self._tasks).collect()
        self._finish(held, [Row(*each) for each in found], number)

    def _finish(self, held: OpenSink, found: list[Row], number: int) -> None:
        reports = list(_all(found, kinds.REPORT, Report))
        self._has_late = any(each.attempt for each in reports) or any(
            self._stage_attempts(stage) for stage in {each.stage for each in reports} - {-1}
        )
        for failure in _all(found, kinds.FAILURE, Failure):
            kind = ConfigError if failure.kind == "ConfigError" else SinkError
            raise kind(failure.text)
        lines = [row.data or "" for row in found if row.op == kinds.LETTER]
        for line in lines:
            assert self._letters is not None
            self._letters.add_line(line.encode())
        copies: dict[str, int] = {}
        for row in found:
            if row.op == kinds.LIVE and row.source is not None:
                copies[row.source] = max(copies.get(row.source, 0), row.version or 0)
        if copies:
            self._end_copies(held, copies, number, is_whole=not lines)
        figures = self._figures
        figures.batch = number
        figures.written += sum(each.written for each in reports)
        figures.filtered += sum(each.filtered for each in reports)
        figures.retries += sum(each.retries for each in reports)
        figures.dead += len(lines)

    def _open(self) -> OpenSink:
        if self._held is None:
            held = OpenSink(self._work)
            try:
                self._retry(held.open)
                if isinstance(held.sink, Fenced):
                    self._term = self._retry(held.sink.begin_term)
            except BaseException:
                held.close()
                raise
            self._held = held
        return self._held

    def _move(self, held: OpenSink, step: int) -> Fence | None:
        if not isinstance(sink := held.sink, Fenced):
            return None
        fence = Fence(self._term, step)
        self._retry(lambda: sink.move_fence(fence))
        return fence

    def _let_late_ones_end(self, held: OpenSink) -> None:
        """Wait for what tasks of an earlier attempt may still write, after a move of the fence."""
        late = held.sink.late_seconds if isinstance(held.sink, Fenced) else 0.0
        if self._has_late and late:
            logger.info(
                "sink %r: waiting %.0f s for what cut-off tasks may still write",
                self._work.sink.name, late,
            )  # fmt: skip
            self._clock.pause(self._leaving, late)
            if self._leaving.is_set():
                raise LeftError("stopped before the tasks had ended")
            self._has_late = False

    def _end_copies(
        self, held: OpenSink, copies: dict[str, int], number: int, *, is_whole: bool
    ) -> None:
        """End the copies of sources, each with its version."""
        name, sink = self._work.sink.name, held.sink
        held.stand_at(self._move(held, 2 * number + 1))
        self._let_late_ones_end(held)
        for source, version in sorted(copies.items()):
            self._retry(lambda: sink.begin_copy(version, source))  # noqa: B023
            if is_whole:
                self._retry(lambda: sink.end_copy(version, source))  # noqa: B023
                self._figures.not_whole.discard(source)
                logger.info("sink %r: the copy of %s is complete", name, source)
                continue
            if isinstance(sink, Abandoning):
                self._retry(lambda: sink.abandon_copy(version, source))  # noqa: B023
            self._figures.not_whole.add(source)
            logger.warning(
                "sink %r: copy not whole: it refused messages of the copy of %s, so the end of the"
                " copy has removed nothing; mend the reason, and start with a new checkpoint",
                name, source,
            )  # fmt: skip


def _all(rows: Iterable[Row], op: str, kind: type[_Told]) -> list[_Told]:
    return [msgspec.json.decode(row.data or "", type=kind) for row in rows if row.op == op]
