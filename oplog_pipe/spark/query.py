"""The query of one sink: its start, its end, and its attempts after a failure."""

import logging
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oplog_kit.backoff import Backoff
from oplog_kit.logs import Format
from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.retry import FIRST_PAUSE, RetryClock
from oplog_pipe.errors import (
    BrokenBatchError,
    ConfigError,
    FencedError,
    PipeError,
    SinkError,
    SourceError,
)
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.model.status import SinkStatus
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.spark.batch import Batches, SinkBatches, SinkFigures
from oplog_pipe.spark.failures import failed
from oplog_pipe.spark.noted import Checkpoint, Claim, NotedSettings
from oplog_pipe.spark.session import batch_progress, stage_attempts
from oplog_pipe.spark.stream import Reading, read_by
from oplog_pipe.spark.tables.table import TableBatches
from oplog_pipe.spark.tasks.work import SinkWork
from oplog_pipe.spark.versions import Versions
from oplog_sync.failure import SPARK_ERRORS, reason
from oplog_sync.source.lag import QueryLag, lag_of

# Seconds between two lines about a batch.
_TELL_SECONDS = 5.0
# Attempts of a batch that Spark does not bring to an end.
_ATTEMPTS = 5
# Seconds between two attempts of a parked sink, at most.
_LONGEST_PARKING = 300.0

logger = logging.getLogger("oplog_pipe")


@dataclass(frozen=True)
class QueryOptions:
    """- ``checkpoint``: folder of all checkpoints. ``tasks``: writing tasks of a batch.
    - ``limit``: operations of a batch from each source.
    - ``available_now``: end when all that there is now is written.
    - ``log_format``: of the tasks, too.
    """

    checkpoint: str
    tasks: int
    limit: int
    available_now: bool = False
    log_format: Format = "text"


class SinkQuery:
    """``look`` at it often: a parked one starts again. ``error``: why it has ended for good."""

    def __init__(
        self,
        spark: SparkSession,
        settings: PipeSettings,
        number: int,
        options: QueryOptions,
        *,
        clock: RetryClock = RetryClock(),  # noqa: B008 - it holds no state
    ) -> None:
        self.error: PipeError | None = None
        self.is_done = False
        self.sink = settings.sinks[number]
        self._spark = spark
        self._settings = settings
        self._number = number
        self._options = options
        self._clock = clock
        self._checkpoint = f"{options.checkpoint.rstrip('/')}/{self.sink.name}"
        self._figures = SinkFigures()
        self._lag: QueryLag | None = None
        self._leaving = threading.Event()
        self._claim: Claim | None = None
        # None: it is parked, or has ended.
        self._running: tuple[StreamingQuery, Batches] | None = None
        self._parked: PipeError | None = None
        self._backoff = Backoff(FIRST_PAUSE, _LONGEST_PARKING)
        self._again_at = 0.0
        self._reached = -1
        # Whether the first batch is under way.
        self._is_first = False
        # The last batch, and when something was last told about the one behind it.
        self._told = (-1, clock.now())
        # When the present batch was first seen.
        self._begun_at = clock.now()
        # Attempts in a row that Spark did not bring to an end.
        self._broken = 0
        # When the query has ended or, before its first batch, started: nothing is known since.
        self._ended_at = clock.now()

    def start(self) -> None:
        """Start the query. A failure ends it, or parks it."""
        self._attempt(self._start)

    def look(self) -> None:
        """Note an end of the query, and start a parked one again when it is time."""
        if self.is_done:
            return
        if self._running is None:
            if self._clock.now() >= self._again_at:
                self._attempt(self._start)
            return
        query, batches = self._running
        if not query.isActive:
            self._attempt(partial(self._ended, query, batches))
            return
        if self._parked is not None and self._figures.batch > self._reached:
            logger.info("sink %r is no longer parked", self.sink.name)
            self._parked = None
        if (progress := query.lastProgress) is not None:
            self._lag = lag_of(progress)
        is_busy = bool(query.status["isTriggerActive"])
        self._is_first = self._figures.batch < 0 and is_busy
        if not is_busy or self._figures.batch != self._told[0]:
            self._begun_at = self._clock.now()
            self._told = self._figures.batch, self._begun_at
        elif self._clock.now() >= self._told[1] + _TELL_SECONDS:
            self._told = self._figures.batch, self._clock.now()
            with suppress(*SPARK_ERRORS):  # it has ended meanwhile
                if said := batch_progress(self._spark, str(query.runId)):
                    logger.info("sink %r: a batch is under way: %s", self.sink.name, said)

    def stop(self) -> None:
        """End the query. Its batch comes again at the next start."""
        self._leaving.set()
        self.is_done = True
        if self._running is not None:
            query, batches = self._running
            with suppress(Exception):  # Java may be gone
                query.stop()
            batches.close()
            self._running = None

    def status(self) -> SinkStatus:
        """Return the present state. Any thread may call it."""
        figures, running, lag = self._figures, self._running, self._lag
        error = self.error or self._parked
        retrying, retries = None, figures.retries
        if running is not None:
            retrying = running[1].retrying
            retries += running[1].retries
        return SinkStatus(
            self.sink.name,
            self.sink.type,
            "stopped" if self.is_done else "bulk" if self._parked is None else "parked",
            offset=figures.batch,
            flushed=figures.batch,
            lag=0 if lag is None else lag.operations,
            lag_seconds=self._lag_seconds(),
            written=figures.written,
            filtered=figures.filtered,
            dead=figures.dead,
            retries=retries,
            error=retrying if error is None else str(error),
            not_whole=sorted(figures.not_whole),
        )

    def _lag_seconds(self) -> float:
        """Return the lag, and the time since the query has ended, or hangs, or has begun a copy."""
        seconds = 0.0 if self._lag is None else self._lag.seconds
        running, now = self._running, self._clock.now()
        if running is not None and running[1].retrying is not None:
            return seconds + now - self._begun_at
        is_idle = running is None and (self.error or self._parked) is not None
        if is_idle or self._is_first:
            seconds += now - self._ended_at
        return seconds

    def _start(self) -> None:
        settings, sink, options = self._settings, self.sink, self._options
        sources = read_by(sink, settings.sources)
        work = SinkWork(
            settings.name or "",
            settings.root,
            f"sinks[{self._number}]",
            sink,
            {each.name: each.namespace for each in sources},
            uuid.uuid4().hex,
            options.log_format,
        )
        noted = NotedSettings(self._spark, self._checkpoint)
        made = noted.check(work.place, sink, sources)
        self._claim_checkpoint(work.owner)
        versions = Versions(noted, made, [each.name for each in sources])
        batches = self._batches(work, made, noted, versions)
        reading = Reading(self._spark, sink, settings.root, options.limit)
        try:
            rows = reading.stream(sources)
            writer = rows.writeStream.queryName(sink.name).foreachBatch(batches)
            if options.available_now:
                writer = writer.trigger(availableNow=True)
            query = writer.option("checkpointLocation", self._checkpoint).start()
        except PySparkException as error:
            raise SourceError(reason(error)) from error
        self._running = query, batches

    def _claim_checkpoint(self, owner: str) -> None:
        """Raise FencedError if another driver has begun since the first start of the query."""
        if self._claim is None:
            self._claim = Claim(self._spark, self._checkpoint, owner)
            return
        try:
            self._claim.check()
        except (*SPARK_ERRORS, OSError) as error:
            raise self._failed(error) from error

    def _batches(
        self, work: SinkWork, made: Checkpoint, noted: NotedSettings, versions: Versions
    ) -> Batches:
        assert self._claim is not None
        check = self._claim.check
        if isinstance(work.sink.options, FormatOptions):
            return TableBatches(work, self._figures, versions, check, self._checkpoint, made.id)
        dead = work.sink.dead_letter
        return SinkBatches(
            work,
            self._figures,
            DeadLetters(work.root / dead) if dead else None,
            versions,
            check,
            tasks=self._options.tasks,
            is_new=not noted.has_batches(),
            stage_attempts=partial(stage_attempts, self._spark),
            leaving=self._leaving,
            clock=self._clock,
        )

    def _ended(self, query: StreamingQuery, batches: Batches) -> None:
        """Raises PipeError if the query has failed."""
        self._running = None
        self._figures.retries += batches.retries
        batches.close()
        if batches.error is not None:
            raise batches.error
        if (error := query.exception()) is not None:
            raise self._failed(error) from error
        self.is_done = True

    def _failed(self, error: BaseException) -> PipeError:
        return failed(error, quotes=self.sink.select is not None)

    def _attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
        except PipeError as error:
            self._ended_at = self._clock.now()
            if self._may_start_again(error):
                self._park(error)
                return
            self.error = error
            self.is_done = True
            logger.error("sink %r has ended, and the other sinks go on: %s", self.sink.name, error)

    def _may_start_again(self, error: PipeError) -> bool:
        if isinstance(error, BrokenBatchError):
            self._broken = 0 if self._figures.batch > self._reached else self._broken + 1
            return self._broken < _ATTEMPTS or self.sink.on_failure == "park"
        # After another driver two would take turns for ever.
        is_other = isinstance(error, FencedError)
        is_ours = isinstance(error, SinkError | ConfigError) and not is_other
        return is_ours and self.sink.on_failure == "park"

    def _park(self, error: PipeError) -> None:
        if isinstance(error, BrokenBatchError):
            logger.warning("sink %r: %s; trying again", self.sink.name, error)
        elif self._parked is None:
            logger.error(
                "sink %r is parked, and the other sinks go on: %s; it is tried again until it"
                " works", self.sink.name, error,
            )  # fmt: skip
        if self._figures.batch > self._reached:
            self._backoff.reset()
        else:
            self._backoff.grow()
        self._reached = self._figures.batch
        self._parked = error
        pause = self._backoff.pause * (1 - self._clock.jitter() / 2)
        self._again_at = self._clock.now() + pause
