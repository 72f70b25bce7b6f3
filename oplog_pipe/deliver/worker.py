"""The thread of one sink: it opens the sink, delivers, and parks after a failure."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Literal

from oplog_kit.backoff import Backoff
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.deliver.dead_letters import DeadLetters
from oplog_pipe.deliver.delivery import FOR_EVER, SinkDelivery
from oplog_pipe.deliver.letters import Letters
from oplog_pipe.deliver.patience import Patience
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.preparing import Preparing
from oplog_pipe.deliver.retry import FIRST_PAUSE, LeftError, Retry, RetryClock
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.errors import ConfigError, PipeError, SinkError
from oplog_pipe.message import version_of
from oplog_pipe.model.reasons import of_code
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.model.status import GAVE_UP, WAITS_FOR_COPY, SinkStatus
from oplog_pipe.model.wholeness import Wholeness
from oplog_pipe.sinks.base import Mirroring, Sink, Versioned

# Seconds between two attempts of a parked sink, at most.
_LONGEST_PARKING = 300.0

logger = logging.getLogger("oplog_pipe")


class Worker:
    """The only caller of a sink and its steps. Its thread ends by itself after ``drain``.

    - ``offset``: the last acknowledged one. ``wholeness``: None: as of a sink without a past.
    - ``copy_due``: up to this offset the sink has given up its place; -1: it has not.
    - ``recover_until``: at this offset the sink is ready.
    - ``single_until``: messages up to this offset are written one at a time; ``FOR_EVER``: all.
    - ``place``: of the sink in the settings.
    - ``changed``: called in any thread when ``is_ready``, ``wants_copy`` or ``is_done`` have become
      true.
    """

    def __init__(
        self,
        settings: SinkSettings,
        sink: Sink,
        steps: Steps,
        log: CommitLog,
        *,
        offset: int,
        wholeness: Wholeness | None = None,
        copy_due: int = -1,
        recover_until: int = -1,
        single_until: int = -1,
        dead_letters: DeadLetters | None = None,
        place: str = "sink",
        changed: Callable[[], None] = lambda: None,
        clock: RetryClock = RetryClock(),  # noqa: B008 - it holds no state
    ) -> None:
        self.name = settings.name
        self.error: BaseException | None = None
        self._settings = settings
        self._sink = sink
        self._steps = steps
        self._log = log
        self._where = place
        self._changed = changed
        self._clock = clock
        self._is_single = single_until == FOR_EVER
        self._is_done = self._is_open = self._is_judged = False
        self._draining, self._left = threading.Event(), threading.Event()
        self._parked: str | None = None
        self._place = SinkPlace(
            offset,
            wholeness or Wholeness(offset),
            copy_due=copy_due,
            ready_at=recover_until,
            changed=changed,
        )
        self._letters = Letters(dead_letters, settings.dead_letter_limit, clock.now)
        self._retry = Retry(settings.name, settings.retry_for, self._draining, clock)
        patience = Patience(settings.retry_for, clock.now)
        self._delivery = SinkDelivery(
            settings,
            sink,
            Preparing(settings, steps, log.created, patience),
            patience,
            log,
            self._place,
            self._letters,
            self._retry,
            single_until=single_until,
            draining=self._draining,
            left=self._left,
            now=clock.now,
            worked=self._unpark,
        )
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
    def is_ready(self) -> bool:
        """Whether the sink has been through the backlog it had at the start."""
        return self._place.is_ready

    @property
    def is_awaited(self) -> bool:
        """Whether the sources wait for the sink."""
        return not (self.is_ready or self.is_parked)

    @property
    def is_parked(self) -> bool:
        """Whether the sink has failed and keeps its place. Nothing waits for it."""
        return self._parked is not None

    @property
    def is_at_copy(self) -> bool:
        """Whether the sink begins or ends a copy, without a failure. It may take long."""
        return self._delivery.is_at_copy and self._retry.error is None

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def offset(self) -> int:
        """The last acknowledged one; -1: none."""
        return self._place.offset

    @property
    def copy_due(self) -> int:
        """Up to this offset the sink has given up its place; -1: it has not."""
        return self._place.copy_due

    @property
    def wants_copy(self) -> bool:
        """Whether the sink has given up its place and works again."""
        return self._place.wants_copy

    def give_up(self, offset: int) -> bool:
        """Pass over all entries up to an offset; a copy is due.

        Any thread may call it, whatever the sink does. Returns False if the sink is already behind
        the offset.
        """
        return self._place.give_up(offset)

    def begin_copy(self, due: int) -> None:
        """Note the coming copy for this ``copy_due``."""
        self._place.begin_copy(due)

    def take_unflushed(self) -> dict[str, int]:
        """Return what has changed in the offset log since the last call, by its keys."""
        return self._place.take_unflushed()

    def flushed(self, offsets: Mapping[str, int]) -> None:
        """Note what is on disk."""
        self._place.flush(offsets)

    def status(self) -> SinkStatus:
        """Return the present state, without ``lag_seconds``. Any thread may call it."""
        offset = self._place.offset
        return SinkStatus(
            self.name,
            self._settings.type,
            self._phase(),
            offset=offset,
            flushed=self._place.flushed,
            lag=max(self._log.end - 1 - offset, 0),
            written=self._delivery.written,
            filtered=self._delivery.filtered,
            dead=self._letters.written,
            retries=self._retry.retries,
            error=self._parked or self._retry.error if self.error is None else str(self.error),
            not_whole=self._place.not_whole,
            notice=self._notice(),
            copy_due=self._place.copy_due >= 0,
        )

    def _notice(self) -> str | None:
        if self._place.copy_due >= 0:
            return f"{GAVE_UP}; {WAITS_FOR_COPY}"
        return self._sink.notice if isinstance(self._sink, Mirroring) else None

    def _phase(self) -> Literal["recovery", "single", "bulk", "parked", "stopped"]:
        if self.is_done:
            return "stopped"
        if self.is_parked:
            return "parked"
        if not self.is_ready:
            return "recovery"
        return "single" if self._is_single else "bulk"

    # The thread

    def _run(self) -> None:
        try:
            self._live()
        except LeftError as error:
            logger.warning(
                "sink %r stops at offset %d, and continues behind it at the next start: %s",
                self.name, self._place.offset, error,
            )  # fmt: skip
        except BaseException as error:
            self.error = error
            logger.debug("sink %r has failed", self.name, exc_info=error)
        finally:
            for close in (self._steps.close, self._sink.close):
                try:
                    close()
                except BaseException as error:  # also sys.exit: the thread must be seen to end
                    logger.warning(
                        "sink %r: closing has failed: %s", self.name, of_code(error),
                    )  # fmt: skip
            self._is_done = True
            self._changed()

    def _live(self) -> None:
        """Work until the end of a drain. A failure parks the sink, if the settings say so."""
        backoff = Backoff(FIRST_PAUSE, _LONGEST_PARKING)
        while True:
            reached = self._place.offset
            try:
                self._open()
                while not self._left.is_set() and self._delivery.step():
                    pass
                return
            except (SinkError, ConfigError) as error:
                if self._settings.on_failure != "park":
                    raise
                if self._place.offset > reached:
                    backoff.reset()
                else:
                    backoff.grow()
                self._park(error, backoff.pause * (1 - self._clock.jitter() / 2))
            if self._draining.is_set():
                return

    def _open(self) -> None:
        if not self._is_open:
            self._retry(self._sink.open)
            self._is_open = True
        if not self._is_judged:
            self._judge()
            self._is_judged = True
            self._unpark()

    def _park(self, error: PipeError, pause: float) -> None:
        """Keep the place for a while. ``pause``: seconds."""
        if not self.is_parked:
            logger.error(
                "sink %r is parked at offset %d, and the other sinks go on: %s; it is tried again"
                " until it works", self.name, self._place.offset, error,
            )  # fmt: skip
        self._parked = str(error)
        self._delivery.fail(error)
        self._changed()
        self._clock.pause(self._draining, pause)

    def _unpark(self) -> None:
        if self._parked is not None:
            logger.info("sink %r is no longer parked", self.name)
            self._parked = None

    def _judge(self) -> None:
        """Raises ConfigError if the target belongs to another folder."""
        if not isinstance(self._sink, Versioned):
            return
        newest = self._retry(self._sink.newest_version)
        own = version_of(self._log.created, self._log.end - 1)
        if newest is not None and newest > own:
            raise ConfigError(
                f"{self._where}: the target has objects of version {newest}, which is larger than"
                f" {own}, the newest version of this folder: another folder has written them."
                " Use that folder, or empty the target and let the sink start with start: copy"
            )
