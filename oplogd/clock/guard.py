"""The guarded time of a store: the rule, with the clocks of the system."""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from oplogd.clock import Clock
from oplogd.clock.ages import Ages, Present
from oplogd.clock.rule import (
    RECENT_MS,
    REMOVE_MS,
    STEP_MS,
    ClockReading,
    Guarded,
    Saved,
    begin,
    follow,
    is_other,
    is_recent,
    judge,
    removal_ms,
    save,
)
from oplogd.model.operation import format_ms

# The guarded time is saved so often, besides at each begin and end of a pause.
_SAVE_MS = 60_000

# Two readings further apart are not of one moment.
_TOGETHER_SECONDS = 1.0

# A smaller difference between the two clocks' progress needs no judgement.
_ALIKE_MS = 100

# The end of the year 9999.
_LAST_MS = 253_402_300_799_999

logger = logging.getLogger("oplogd.clock")


class ClockStep(NamedTuple):
    """A step of the wall clock not followed yet. Times are ms since 1970.

    ``from_ms``: the guarded time for removals. ``to_ms``: the wall clock. ``waiting``: ``times``,
    ``removals`` or both. ``is_stop``: it may be the time of an ordinary stop.
    """

    from_ms: int
    to_ms: int
    waiting: tuple[str, ...]
    is_stop: bool = False

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
        # The last judged reading that gave the wall clock as the time, and the ages; None: the next
        # reading is judged.
        self._latest: tuple[int, int, Ages] | None = None
        # The last saved state, and the time by the boot clock.
        self._saved: Saved | None = None
        self._saved_at = 0
        self._episodes = Episodes()
        # Whether the store knows the other agents' view of the waiting step.
        self._has_compared = True

    def now_ms(self) -> int:
        """Return the time for stamps, arrival times, and expiry in reads."""
        latest = self._latest
        if latest is not None:  # almost always both clocks went on alike: nothing to judge
            wall, boot = self._wall_ms(), int(self._boot() * 1000)
            passed = wall - latest[0]
            if passed >= 0 and abs(passed - (boot - latest[1])) < _ALIKE_MS:
                return wall
        return self._look()[0].times.ms

    def present(self) -> Present:
        """Return the present for stamps, reads, and time-outs."""
        ms, latest = self.now_ms(), self._latest
        if latest is not None:
            return Present(ms, ms, latest[2])
        times, removals, ages = self._look()[0]
        return Present(times.ms, min(times.ms, removals.ms), ages)

    def removal(self) -> Present:
        """Return the present for removals by age."""
        guarded, reading = self._look()
        ms = removal_ms(guarded, reading.wall)
        return Present(ms, ms, guarded.ages)

    def removal_ms(self) -> int:
        return self.removal().ms

    def before_ms(self, age_ms: int) -> int:
        """Return the time in the store before which all is older than this, for removals."""
        present = self.removal()
        return present.ages.oldest(present.ms - age_ms)

    def ages(self) -> Ages:
        """Return the rule of ages over steps of the clock."""
        return self.present().ages

    def step(self) -> ClockStep | None:
        """Return the step not followed yet; None: the clocks agree."""
        guarded, reading = self._look()
        return _step(guarded, reading, self._episodes.is_stop)

    def begin(self, saved: Saved | None, *, is_logged: bool = True) -> None:
        """Begin anew with the time saved in the store. None: there is none."""
        with self._lock:
            reading = self._read()
            self._state = guarded = begin(reading, saved)
            self._latest = None
            self._saved = None
            self._has_compared = True
            step = _step(guarded, reading, guarded.ages.is_stop_open)
            self._episodes.start(step, is_logged=is_logged)

    def trust(self) -> None:
        """Take the wall clock as the time at once: a person says that it is right."""
        with self._lock:
            reading, before = self._read(), self._state
            self._state = begin(reading) if before is None else follow(before, reading)
            self._latest = None
            self._saved = None

    @property
    def is_unsure(self) -> bool:
        """Whether a step has come that other agents may know more about: see ``compare``."""
        return not self._has_compared

    def compare(self, saved: Saved | None) -> None:
        """Take over the guarded time of a running agent, if this one has just seen a step.

        After a sleep of this machine, for example, theirs is right.
        """
        with self._lock:
            reading = self._read()
            self._has_compared = True
            before = self._state
            is_large = before is not None and abs(reading.wall - before.removals.ms) >= RECENT_MS
            if saved is not None and is_large and is_recent(saved, reading.wall):
                self._state = begin(reading, saved)
                self._latest = None

    def due(self) -> Saved | None:
        """Return the state to save in the store now. None: it is saved already."""
        guarded, reading = self._look()
        saved = save(guarded, reading.wall)
        is_saved = self._saved is not None and _is_known_from(self._saved, saved)
        is_saved &= reading.boot - self._saved_at < _SAVE_MS
        return None if is_saved else saved

    def was_saved(self, saved: Saved) -> None:
        self._saved = saved
        self._saved_at = self._read().boot

    def _read(self) -> ClockReading:
        """Read both clocks. A process stopped in between reads them again."""
        while True:
            began, wall, boot = self._boot(), self._wall_ms(), self._boot()
            if boot - began < _TOGETHER_SECONDS:
                return ClockReading(wall, int(boot * 1000))

    def _look(self) -> tuple[Guarded, ClockReading]:
        with self._lock:
            before, reading = self._state, self._read()
            guarded = begin(reading) if before is None else judge(before, reading)
            self._state = guarded
            is_alike = guarded.removals.lead is None and guarded.times.ms == reading.wall
            self._latest = (*reading, guarded.ages) if is_alike else None
            if before is not None:
                if before.removals.lead is None and guarded.removals.lead is not None:
                    self._has_compared = False
                is_new = is_other(before.removals, guarded.removals)
                self._episodes.saw(_step(guarded, reading), reading.boot, is_new=is_new)
        return guarded, reading


class Episodes:
    """Logs steps: one line at the begin of an episode, one after ten minutes without a step."""

    def __init__(self) -> None:
        self._count = 0
        self._quiet_since: int | None = None
        # Whether the waiting step may be the time of an ordinary stop.
        self.is_stop = False

    def start(self, step: ClockStep | None, *, is_logged: bool = True) -> None:
        """Log how far the clock is from the time saved in the store at a start."""
        is_ahead = step is not None and step.seconds > 0
        self.is_stop = step is not None and step.is_stop and is_ahead
        # A step begins an episode, a stop does not.
        self._count = int(step is not None and not self.is_stop and is_logged)
        if step is None or not is_logged:
            return
        if self.is_stop:
            logger.info(
                "the store was last used %.0f s ago by the clock: nothing is removed because of its"
                " age for ten minutes, in case the clock is wrong",
                step.seconds,
            )
        else:
            logger.warning(
                "the clock is %.0f s %s the time in the store: nothing is removed because of"
                " its age until the clock has stood for ten minutes",
                abs(step.seconds),
                "ahead of" if is_ahead else "behind",
            )

    def saw(self, step: ClockStep | None, boot: int, *, is_new: bool) -> None:
        """Take notice of a reading. ``is_new``: the clock stepped or came back."""
        if step is not None:
            self._quiet_since = None
            if is_new:
                self.is_stop = False
                self._count += 1
                if self._count == 1:
                    logger.warning(
                        "the clock stepped by %+.0f s, from %s to %s: stamps and arrival times"
                        " follow after one minute, removals because of age after ten, unless it"
                        " comes back",
                        step.seconds,
                        text_of(step.from_ms),
                        text_of(step.to_ms),
                    )
            return
        self.is_stop = False
        if not self._count:
            return
        if self._quiet_since is None:
            self._quiet_since = boot
        elif boot - self._quiet_since >= REMOVE_MS:
            logger.info(
                "the clock has stood for ten minutes: nothing waits. Steps since the warning: %d",
                self._count,
            )
            self._count, self._quiet_since = 0, None


def _is_known_from(before: Saved, saved: Saved) -> bool:
    """Return whether the same steps wait as before, so that only time has passed."""
    pairs = zip(_waiting(before), _waiting(saved), strict=True)
    return before.ages == saved.ages and all(
        bool(one) == bool(other) and abs(one - other) < STEP_MS for one, other in pairs
    )


def _waiting(saved: Saved) -> tuple[int, int]:
    """Return the steps that times and removals wait for in ms; 0: for none."""
    times = saved.wall - saved.times if saved.times_left else 0
    return times, saved.wall - saved.removals if saved.removals_left else 0


def _step(guarded: Guarded, reading: ClockReading, is_stop: bool = False) -> ClockStep | None:
    times, removals, _ = guarded
    waits = {"times": times.lead is not None, "removals": removals.lead is not None}
    waiting = tuple(name for name, is_waiting in waits.items() if is_waiting)
    return ClockStep(removals.ms, reading.wall, waiting, is_stop) if waiting else None


def text_of(ms: int) -> str:
    """Return a time as RFC 3339, or the nearest one that it can tell."""
    return format_ms(min(max(ms, 0), _LAST_MS))
