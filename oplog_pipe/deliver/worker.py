"""The thread of one sink: it opens the sink, delivers, and parks after a failure."""

import logging
import threading
from collections.abc import Callable
from typing import Literal

from oplog_kit.backoff import Backoff
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.deliver.delivery import FOR_EVER, SinkDelivery
from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.retry import FIRST_PAUSE, LeftError, RetryClock, outwait
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.errors import ConfigError, PipeError, SinkError, TargetError
from oplog_pipe.model.reasons import of_code
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.model.status import GAVE_UP, WAITS_FOR_COPY, SinkStatus
from oplog_pipe.sinks.base import Fenced, Mirroring, Sink
from oplog_pipe.sinks.parts.fence import SETTLED, Fence

# Seconds between two attempts of a parked sink, at most.
_LONGEST_PARKING = 300.0

logger = logging.getLogger("oplog_pipe")


class Worker:
    """The only caller of a sink and its steps. Its thread ends by itself after ``drain``.

    - ``single_until``: messages up to this offset are written one at a time; ``FOR_EVER``: all.
    - ``changed``: called in any thread after a change of ``is_parked`` or ``is_done``.
    """

    def __init__(
        self,
        settings: SinkSettings,
        sink: Sink,
        steps: Steps,
        log: CommitLog,
        place: SinkPlace,
        *,
        single_until: int = -1,
        dead_letters: DeadLetters | None = None,
        changed: Callable[[], None] = lambda: None,
        clock: RetryClock = RetryClock(),  # noqa: B008 - it holds no state
    ) -> None:
        self.name = settings.name
        self.error: BaseException | None = None
        self._settings = settings
        self._sink = sink
        self._steps = steps
        self._log = log
        self._changed = changed
        self._clock = clock
        self.is_done = self._is_open = False
        self._draining, self._left = threading.Event(), threading.Event()
        self._parked: str | None = None
        self.place = place
        self._delivery = SinkDelivery(
            settings, sink, steps, log, place, dead_letters, clock, single_until=single_until,
            draining=self._draining, left=self._left, worked=self._unpark,
        )  # fmt: skip
        self._retry = self._delivery.retry
        self._thread = threading.Thread(target=self._run, name=f"sink {self.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def drain(self) -> None:
        """Let the thread end at the end of the log. Wake the log until ``is_done``."""
        self._draining.set()

    def leave(self) -> None:
        """Let the thread end after the present call of the sink."""
        self._left.set()
        self._draining.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(seconds)

    @property
    def is_awaited(self) -> bool:
        """Whether the sources wait for the sink."""
        return not (self.place.is_ready or self.is_parked)

    @property
    def is_parked(self) -> bool:
        """Whether the sink has failed and keeps its place. Nothing waits for it."""
        return self._parked is not None

    @property
    def is_at_copy(self) -> bool:
        """Whether the sink begins or ends a copy, without a failure. It may take long."""
        return self._delivery.is_at_copy and self._retry.error is None

    def status(self) -> SinkStatus:
        """Return the present state, without ``lag_seconds``. Any thread may call it."""
        offset = self.place.offset
        return SinkStatus(
            self.name,
            self._settings.type,
            self._phase(),
            offset=offset,
            flushed=self.place.flushed,
            lag=max(self._log.end - 1 - offset, 0),
            written=self._delivery.written,
            filtered=self._delivery.filtered,
            dead=self._delivery.letters.written,
            retries=self._retry.retries,
            error=self._parked or self._retry.error if self.error is None else str(self.error),
            not_whole=self.place.not_whole,
            notice=self._notice(),
            copy_due=self.place.copy_due >= 0,
        )

    def _notice(self) -> str | None:
        if self.place.copy_due >= 0:
            return f"{GAVE_UP}; {WAITS_FOR_COPY}"
        return self._sink.notice if isinstance(self._sink, Mirroring) else None

    def _phase(self) -> Literal["recovery", "single", "bulk", "parked", "stopped"]:
        if self.is_done:
            return "stopped"
        if self.is_parked:
            return "parked"
        if not self.place.is_ready:
            return "recovery"
        return "single" if self._delivery.single_until == FOR_EVER else "bulk"

    # The thread

    def _run(self) -> None:
        try:
            self._live()
        except LeftError as error:
            logger.warning(
                "sink %r stops at offset %d, and continues behind it at the next start: %s",
                self.name, self.place.offset, error,
            )  # fmt: skip
        except BaseException as error:
            self.error = error
            logger.debug("sink %r has failed", self.name, exc_info=error)
        finally:
            for close in (self._steps.close, self._sink.close):
                try:
                    close()
                except BaseException as error:  # also sys.exit: the thread must be seen to end
                    reason = of_code(error)
                    logger.warning("sink %r: closing has failed: %s", self.name, reason)
            self.is_done = True
            self._changed()

    def _live(self) -> None:
        """Work until the end of a drain. A failure parks the sink, if the settings say so."""
        backoff = Backoff(FIRST_PAUSE, _LONGEST_PARKING)
        while True:
            reached = self.place.offset
            try:
                self._open()
                while not self._left.is_set() and self._delivery.step():
                    pass
                return
            except (SinkError, ConfigError) as error:
                if self._settings.on_failure != "park":
                    raise
                if self.place.offset > reached:
                    backoff.reset()
                else:
                    backoff.grow()
                self._park(error, backoff.pause * (1 - self._clock.jitter() / 2))
            if self._draining.is_set():
                return

    def _open(self) -> None:
        if not self._is_open:
            self._retry(self._sink.open)
            if isinstance(self._sink, Fenced):
                self._settle(self._sink)
            self._is_open = True
            self._unpark()

    def _settle(self, sink: Fenced) -> None:
        """Let tasks of Spark fail that may still write, and wait for what is under way.

        Raises SinkError, LeftError.
        """
        try:
            fence = self._retry(sink.read_fence)
        except TargetError as error:
            logger.warning(
                "sink %r: whether late tasks of Spark may write its rows is not known: %s",
                self.name, error,
            )  # fmt: skip
            return
        if fence is None or fence.step == SETTLED:
            return
        term = self._retry(sink.begin_term)
        if sink.late_seconds:
            outwait(self.name, sink.late_seconds, self._draining, self._clock)
        self._retry(lambda: sink.move_fence(Fence(term, SETTLED)))

    def _park(self, error: PipeError, pause: float) -> None:
        """Keep the place for a while. ``pause``: seconds."""
        if not self.is_parked:
            logger.error(
                "sink %r is parked at offset %d, and the other sinks go on: %s; it is tried again"
                " until it works", self.name, self.place.offset, error,
            )  # fmt: skip
        self._parked = str(error)
        self._delivery.fail(error)
        self._changed()
        self._clock.pause(self._draining, pause)

    def _unpark(self) -> None:
        if self._parked is not None:
            logger.info("sink %r is no longer parked", self.name)
            self._parked = None
