"""Appends that do not return: a hanging disk or database raises no error."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import NotConfirmedError, OplogError, StoreError, StoreUnavailableError
from oplogd.host.logs import Episode
from oplogd.watch.health import Health, Part

# Longer appends degrade the agent. A lock of SQLite or an unreachable MongoDB fails them sooner,
# after 4 or 5 seconds, with the reason.
HANGING_SECONDS = 8.0

# Requests waiting for an append that takes longer get 503.
ANSWER_SECONDS = 30.0

# While an append hangs, no more appends than these wait for the store.
MAX_WAITING = 1_000

_LOOK_SECONDS = 1.0
_QUIET_SECONDS = 60.0
# The most that passes between two looks. For the rest the process was stopped.
_MOST_BETWEEN_LOOKS = 2.0
_LATE = f"the store has not confirmed an append within {ANSWER_SECONDS:g} s"

# Fails the requests waiting for an append, and those behind them.
GiveUp = Callable[[NotConfirmedError], None]

_T = TypeVar("_T")

logger = logging.getLogger("oplogd.store")


class _Step(NamedTuple):
    began: float
    give_up: GiveUp


class Appends:
    """Knows the appends and commits begun and not returned.

    While the oldest is older than HANGING_SECONDS, the agent is degraded. After ANSWER_SECONDS the
    waiting requests fail with NotConfirmedError. The append itself goes on and may still succeed.
    Ages may be a second too large. Time in which the process is stopped does not count.
    """

    def __init__(self, health: Health, clock: Clock = SYSTEM) -> None:
        self._part = health.part("append", "the store confirms appends again")
        self._clock = clock
        # Seconds in which the process ran, up to the last look.
        self._passed = 0.0
        self._looked_at = clock.monotonic()
        self._steps: dict[int, _Step] = {}  # by number, so the oldest first
        # Whether an append has returned without an error since the last look.
        self._confirmed = False
        self._numbers = itertools.count()
        self._late: set[asyncio.Task[Any]] = set()
        self._late_failures = Episode(
            logger,
            "a write failed after its request was answered",
            quiet=_QUIET_SECONDS,
            level=logging.ERROR,
            clock=clock.monotonic,
        )

    @contextmanager
    def step(self, give_up: GiveUp) -> Iterator[None]:
        """Watch the append in the block. After ANSWER_SECONDS, call ``give_up`` at each look."""
        number = next(self._numbers)
        self._steps[number] = _Step(self._passed, give_up)
        try:
            yield
            self._confirmed = True
        finally:
            del self._steps[number]

    async def confirmed(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of work that writes.

        Raises NotConfirmedError after ANSWER_SECONDS. The work then goes on without its caller.
        Raises StoreUnavailableError if too many others wait for a hanging store. Then the work is
        not begun: nothing would end it.
        """
        age = self._oldest_age()
        is_crowded = age >= HANGING_SECONDS and len(self._steps) >= MAX_WAITING
        if age >= ANSWER_SECONDS or is_crowded:
            work.close()
            raise StoreUnavailableError(_LATE)
        # Ends with the work, or with an error before.
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def watched() -> _T:
            with self.step(lambda error: _fail(ended, error)):
                return await work

        task = asyncio.create_task(watched(), name="write of a request")
        task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        try:
            await ended
        except asyncio.CancelledError:
            task.cancel()
            raise
        except NotConfirmedError:
            if not task.done():
                self._late.add(task)
                task.add_done_callback(self._ended)
                raise
        return task.result()

    async def run(self) -> None:
        """Look regularly until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Report the oldest append if it hangs, and answer the requests of those that are late."""
        self._late_failures.end()
        confirmed, self._confirmed = self._confirmed, False
        looked_at = self._clock.monotonic()
        self._passed += min(looked_at - self._looked_at, _MOST_BETWEEN_LOOKS)
        self._looked_at, now = looked_at, self._passed
        if self._oldest_age() < HANGING_SECONDS:
            self._part.good("" if confirmed else "the appends that hung have failed")
            return
        self._part.bad(f"the store has not confirmed an append for {HANGING_SECONDS:g} s")
        for step in list(self._steps.values()):
            if now - step.began < ANSWER_SECONDS:
                return
            step.give_up(NotConfirmedError(_LATE))

    def _oldest_age(self) -> float:
        """Return the age of the oldest append in seconds, 0 without any."""
        oldest = next(iter(self._steps.values()), None)
        return 0.0 if oldest is None else self._passed - oldest.began

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        """Log the failure of work whose request has its answer already."""
        self._late.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreError):
            self._late_failures.occurred(detail=str(error))
        elif error is not None and not isinstance(error, OplogError):
            if not self._late_failures.active:
                logger.error("a write failed", exc_info=error)
            self._late_failures.occurred(detail=repr(error))


def _fail(future: "asyncio.Future[None]", error: NotConfirmedError) -> None:
    if not future.done():
        future.set_exception(error)


@contextmanager
def as_unavailable(part: Part, logger: logging.Logger) -> Iterator[None]:
    """Raise every failure as StoreUnavailableError: any other error would end the agent."""
    try:
        yield
    except StoreUnavailableError:
        raise
    except StoreError as error:
        raise StoreUnavailableError(str(error)) from error
    except Exception as error:
        message = f"the store failed, see the log: {error!r}"
        if part.trouble != message:
            logger.error("an append failed", exc_info=error)
        raise StoreUnavailableError(message) from error
