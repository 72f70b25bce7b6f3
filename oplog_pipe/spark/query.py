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
from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.retry import FIRST_PAUSE, RetryClock
from oplog_pipe.errors import ConfigError, PipeError, SinkError, SourceError
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.model.status import SinkStatus
from oplog_pipe.spark.batch import SinkBatches, SinkFigures
from oplog_pipe.spark.noted import NotedSettings
from oplog_pipe.spark.session import stage_attempts
from oplog_pipe.spark.stream import stream
from oplog_pipe.spark.tasks.work import SinkWork
from oplog_sync.failure import reason
from oplog_sync.source.lag import QueryLag, lag_of

# Seconds between two attempts of a parked sink, at most.
_LONGEST_PARKING = 300.0

logger = logging.getLogger("oplog_pipe")


@dataclass(frozen=True)
class QueryOptions:
    """- ``checkpoint``: folder of all checkpoints. ``tasks``: writing tasks of a batch.
    - ``limit``: operations of a batch from each source.
    - ``available_now``: end when all that there is now is written.
    """

    checkpoint: str
    tasks: int
    limit: int
    available_now: bool = False


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
        # None: it is parked, or has ended.
        self._running: tuple[StreamingQuery, SinkBatches] | None = None
        self._parked: PipeError | None = None
        self._backoff = Backoff(FIRST_PAUSE, _LONGEST_PARKING)
        self._again_at = 0.0
        self._reached = -1

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
        retrying = None if running is None else running[1].retrying
        return SinkStatus(
            self.sink.name,
            self.sink.type,
            "stopped" if self.is_done else "bulk" if self._parked is None else "parked",
            offset=figures.batch,
            flushed=figures.batch,
            lag=0 if lag is None else lag.operations,
            lag_seconds=0.0 if lag is None else lag.seconds,
            written=figures.written,
            filtered=figures.filtered,
            dead=figures.dead,
            retries=figures.retries,
            error=retrying if error is None else str(error),
            not_whole=sorted(figures.not_whole),
        )

    def _start(self) -> None:
        settings, sink, options = self._settings, self.sink, self._options
        sources = {each.name: each.namespace for each in settings.sources}
        work = SinkWork(
            settings.name or "", settings.root, f"sinks[{self._number}]", sink, sources,
            uuid.uuid4().hex,
        )  # fmt: skip
        noted = NotedSettings(self._spark, self._checkpoint)
        noted.check(work.place, sink, settings.sources)
        dead = sink.dead_letter
        batches = SinkBatches(
            work,
            self._figures,
            DeadLetters(settings.root / dead) if dead else None,
            tasks=options.tasks,
            is_new=not noted.has_batches(),
            stage_attempts=partial(stage_attempts, self._spark),
            leaving=self._leaving,
            clock=self._clock,
        )
        try:
            rows = stream(self._spark, settings.sources, sink, options.limit)
            writer = rows.writeStream.queryName(sink.name).foreachBatch(batches)
            if options.available_now:
                writer = writer.trigger(availableNow=True)
            query = writer.option("checkpointLocation", self._checkpoint).start()
        except PySparkException as error:
            raise SourceError(reason(error)) from error
        self._running = query, batches

    def _ended(self, query: StreamingQuery, batches: SinkBatches) -> None:
        """Raises PipeError if the query has failed."""
        self._running = None
        batches.close()
        if batches.error is not None:
            raise batches.error
        if (error := query.exception()) is not None:
            raise SourceError(reason(error)) from error
        self.is_done = True

    def _attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
        except PipeError as error:
            if self.sink.on_failure == "park" and isinstance(error, SinkError | ConfigError):
                self._park(error)
                return
            self.error = error
            self.is_done = True
            logger.error("sink %r has ended, and the other sinks go on: %s", self.sink.name, error)

    def _park(self, error: PipeError) -> None:
        if self._parked is None:
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
