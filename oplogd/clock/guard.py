"""The guarded time of a store: the rule, with the clocks of the system."""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from oplogd.clock.clocks import Clock
from oplogd.clock.rule import Guarded, Reading, Saved, begin, judge, removal_ms, save
from oplogd.operation import format_ms

# The guarded time is saved so often, besides at each begin and end of a pause.
_SAVE_MS = 60_000

# Two readings that are further apart are not of one moment.
_TOGETHER_SECONDS = 1.0

# A smaller difference of what has passed by both clocks needs no judgement.
_ALIKE_MS = 100

# The end of the year 9999.
_LAST_MS = 253_402_300_799_999

logger = logging.getLogger("oplogd.clock")


class Step(NamedTuple):
    """A step of the wall clock that is not followed yet. Times are ms since 1970.

    ``from_ms``: the guarded time that removals run on from. ``to_ms``: the wall clock. ``waiting``:
    what does not follow the wall clock: ``times`` and ``removals``.
    """

    from_ms: int
    to_ms: int
    waiting: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return (self.to_ms - self.from_ms) / 1000


class GuardedClock:
    """Compares a wall clock with the boot clock of ``clock``. Any thread may call it.

    ``wall_ms``: the wall clock if it is another server's. See ``rule``.
    """

    def __init__(self, clock: Clock, wall_ms: Callable[[], int] | None = None) -> None:
        self._wall_ms = wall_ms or clock.now_ms
        self._boot = clock.boot
        self._lock = threading.Lock()
        self._state: Guarded | None = None
        # The last reading that gave the wall clock as the time; None: the next one is judged.
        self._latest: tuple[int, int] | None = None
        # What was saved last: the state that waits, and the time by the boot clock.
        self._saved: tuple[bool, bool] = (False, False)
        self._saved_at: int | None = None

    def now_ms(self) -> int:
        """Return the time for stamps, arrival times, time-outs, and what reads hide."""
        latest = self._latest
        if latest is not None:  # almost always both clocks went on alike: nothing to judge
            wall, boot = self._wall_ms(), int(self._boot() * 1000)
            passed = wall - latest[0]
            if passed >= 0 and abs(passed - (boot - latest[1])) < _ALIKE_MS:
                self._latest = wall, boot
                return wall
        return self._look()[0].times.ms

    def removal_ms(self) -> int:
        """Return the time for what is removed for ever because of its age."""
        guarded, reading = self._look()
        return removal_ms(guarded, reading.wall)

    def step(self) -> Step | None:
        """Return the step that is not followed yet; None: the clocks agree."""
        guarded, reading = self._look()
        return _step(guarded, reading)

    def begin(self, saved: Saved | None) -> None:
        """Begin anew with the time that the store has kept. None: it has kept none."""
        with self._lock:
            reading = self._read()
            self._state = guarded = begin(reading, saved)
            self._latest = None
            self._saved_at = None
        step = _step(guarded, reading)
        if step is not None:
            logger.warning(
                "the clock is %+.0f s from the time in the store: nothing is removed because of its"
                " age until the clock has stood for ten minutes",
                step.seconds,
            )

    def due(self) -> Saved | None:
        """Return what the store has to keep now; None: it has kept that already."""
        guarded, reading = self._look()
        if self._saved_at is None or reading.boot - self._saved_at >= _SAVE_MS:
            return save(guarded, reading.wall)
        return save(guarded, reading.wall) if _waiting(guarded) != self._saved else None

    def was_saved(self, saved: Saved) -> None:
        self._saved = bool(saved.times_left), bool(saved.removals_left)
        self._saved_at = self._read().boot

    def _read(self) -> Reading:
        """Read both clocks. A process that is stopped in between reads them again."""
        while True:
            began, wall, boot = self._boot(), self._wall_ms(), self._boot()
            if boot - began < _TOGETHER_SECONDS:
                return Reading(wall, int(boot * 1000))

    def _look(self) -> tuple[Guarded, Reading]:
        with self._lock:
            before, latest = self._state, self._latest
            if before is not None and latest is not None:
                before = judge(before, Reading(*latest))
            reading = self._read()
            guarded = begin(reading) if before is None else judge(before, reading)
            self._state = guarded
            is_alike = guarded.removals.lead is None and guarded.times.ms == reading.wall
            self._latest = (reading.wall, reading.boot) if is_alike else None
        if before is not None and before.removals.lead != guarded.removals.lead:
            _log(guarded, reading)
        return guarded, reading


def _step(guarded: Guarded, reading: Reading) -> Step | None:
    waits = dict(zip(("times", "removals"), _waiting(guarded), strict=True))
    waiting = tuple(name for name, is_waiting in waits.items() if is_waiting)
    return Step(guarded.removals.ms, reading.wall, waiting) if waiting else None


def _waiting(guarded: Guarded) -> tuple[bool, bool]:
    return guarded.times.lead is not None, guarded.removals.lead is not None


def _log(guarded: Guarded, reading: Reading) -> None:
    """Log that a step began or ended."""
    step = _step(guarded, reading)
    if step is None:
        logger.info("the clock is trusted again: nothing waits")
        return
    logger.warning(
        "the clock stepped by %+.0f s, from %s to %s: stamps, arrival times and time-outs follow"
        " after one minute, removals because of age after ten, unless it comes back",
        step.seconds,
        text_of(step.from_ms),
        text_of(step.to_ms),
    )


def text_of(ms: int) -> str:
    """Return a time as RFC 3339, or the nearest one that it can tell."""
    return format_ms(min(max(ms, 0), _LAST_MS))
