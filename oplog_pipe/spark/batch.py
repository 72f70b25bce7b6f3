"""The driver's part of a batch: the fence, what its tasks tell, dead letters, ends of copies."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.retry import Retry, RetryClock, outwait
from oplog_pipe.errors import (
    BrokenBatchError,
    ConfigError,
    FencedError,
    PipeError,
    SinkError,
)
from oplog_pipe.sinks.base import Abandoning, Fenced
from oplog_pipe.sinks.parts.fence import Fence, other_driver
from oplog_pipe.spark.failures import failed
from oplog_pipe.spark.select import for_sink, kept
from oplog_pipe.spark.stream import told
from oplog_pipe.spark.tasks import rows as kinds
from oplog_pipe.spark.tasks.rows import Failure, Report, Row, ends_of, told_of
from oplog_pipe.spark.tasks.work import OpenSink, SinkWork
from oplog_pipe.spark.versions import Versions
from oplog_sync.failure import SPARK_ERRORS

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


class Batches(ABC):
    """Spark calls it with the batches of one query, one after another."""

    def __init__(self, work: SinkWork, check_driver: Callable[[], None]) -> None:
        """``check_driver``: raises FencedError if another driver has begun with the checkpoint."""
        self.error: PipeError | None = None
        self._work = work
        self._check_driver = check_driver

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Raises PipeError, which ``error`` keeps: Spark wraps it."""
        try:
            self._check_driver()
            self._run(rows, number)
        except PipeError as error:
            self.error = error
            raise
        except (*SPARK_ERRORS, OSError) as error:
            self.error = failed(error, quotes=self._work.sink.select is not None)
            raise self.error from error

    @property
    def retrying(self) -> str | None:
        """The failure that is being tried again."""
        return None

    @property
    def retries(self) -> int:
        """Repeated calls of the driver."""
        return 0

    def close(self) -> None:
        """Close what is open between two batches."""
        return

    @abstractmethod
    def _run(self, rows: DataFrame, number: int) -> None:
        """Write a batch. Raises PipeError, and errors of Spark."""


class SinkBatches(Batches):
    """Writes by tasks, with a sink.

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
        versions: Versions,
        check_driver: Callable[[], None],
        *,
        tasks: int,
        is_new: bool,
        stage_attempts: Callable[[int], int],
        leaving: threading.Event,
        clock: RetryClock = RetryClock(),  # noqa: B008 - it holds no state
    ) -> None:
        super().__init__(work, check_driver)
        self._figures = figures
        self._letters = letters
        self._versions = versions
        self._tasks = tasks
        # Whether tasks of an earlier attempt may still run.
        self._has_late = not is_new
        self._stage_attempts = stage_attempts
        self._leaving = leaving
        self._clock = clock
        self._retry = Retry(work.sink.name, work.sink.retry_for, leaving, clock)
        self._held: OpenSink | None = None
        self._term = 0
        # Refused messages since the last batch in which one was written.
        self._row = 0

    @property
    def retrying(self) -> str | None:
        return self._retry.error

    @property
    def retries(self) -> int:
        return self._retry.retries

    def close(self) -> None:
        if self._held is not None:
            self._held.close()

    def _run(self, rows: DataFrame, number: int) -> None:
        held = self._open()
        fence = self._move(held, 2 * number)
        self._let_late_ones_end(held)
        versions = self._versions
        newest = versions.newest(number)
        work = self._work.at(fence, newest)
        rows = versions.give(rows, number, versions.planned(number))
        if work.sink.select is None:
            found = told(rows, work, held.sink, self._tasks).collect()
        else:
            with kept(rows, work) as some:
                found = told(for_sink(some, work), work, held.sink, self._tasks).collect()
        self._finish(held, [Row(*each) for each in found], number, newest)

    def _finish(self, held: OpenSink, found: list[Row], number: int, newest: int) -> None:
        reports = list(told_of(found, kinds.REPORT, Report))
        self._has_late = any(each.attempt for each in reports)
        for failure in told_of(found, kinds.FAILURE, Failure):
            if failure.kind == FencedError.__name__:
                raise other_driver(self._work.owner)
            raise (ConfigError if failure.kind == ConfigError.__name__ else SinkError)(failure.text)
        if any(self._stage_attempts(stage) for stage in {each.stage for each in reports} - {-1}):
            # Tasks that had ended got rows of another reading: operations there, a copy here.
            raise BrokenBatchError("a part of the batch was read twice, so it is repeated")
        letters = [row for row in found if row.op == kinds.LETTER]
        self._judge(len(letters), sum(each.written for each in reports))
        for row in letters:
            assert self._letters is not None
            self._letters.add_line((row.data or "").encode())
        if copies := ends_of(found):
            self._end_copies(held, copies, number, newest, {row.source for row in letters})
        figures = self._figures
        figures.batch = number
        figures.written += sum(each.written for each in reports)
        figures.filtered += sum(each.filtered for each in reports)
        figures.retries += sum(each.retries for each in reports)
        figures.dead += len(letters)

    def _judge(self, refused: int, written: int) -> None:
        """Raise SinkError if so many messages are refused that the target seems to be ill."""
        limit = self._work.sink.dead_letter_limit
        self._row = refused if written else self._row + refused
        is_row = not written and self._row >= limit
        if limit and refused and (is_row or (refused >= 5 * limit and refused >= written)):
            raise SinkError(
                f"{self._row} messages were refused, and {written} of the batch were written: the"
                " target seems to be ill, so they are no dead letters"
            )

    def _open(self) -> OpenSink:
        if self._held is None:
            held = OpenSink(self._work)
            try:
                self._retry(held.open)
                if isinstance(held.sink, Fenced):
                    self._term = self._retry(held.sink.begin_term)
                    self._check_driver()  # it may have been frozen before
                # There was a driver before, maybe with another checkpoint.
                self._has_late |= self._term > 1
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
            outwait(self._work.sink.name, late, self._leaving, self._clock)
            self._has_late = False

    def _end_copies(
        self,
        held: OpenSink,
        copies: dict[str, int],
        number: int,
        newest: int,
        lacking: set[str | None],
    ) -> None:
        """End the copies of sources, each with its version. ``lacking``: some had refused ones."""
        name, sink = self._work.sink.name, held.sink
        held.stand_at(self._move(held, 2 * number + 1), newest)
        self._let_late_ones_end(held)
        for source, version in sorted(copies.items()):
            self._retry(lambda: sink.begin_copy(version, source))  # noqa: B023
            if source not in lacking:
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
