"""The rule of the guarded time: the influence of a wall clock on the times of a store. No I/O.

A wrong wall clock must not date messages, or remove any. So it is compared with the boot clock. A
difference of less than STEP_MS is taken at once. After a larger one, a step, the guarded time runs
on at the pace of the boot clock until the new time has stood for long enough: FOLLOW_MS for times
given to entries, REMOVE_MS for removals by age. A step does not change the ages of older entries:
see ``ages``.

All times are ms. Those of the wall clock count from 1970, those of the boot clock from any moment.
"""

from typing import NamedTuple

from oplogd.clock.ages import MAX_LEAD_MS as MAX_LEAD_MS
from oplogd.clock.ages import Ages

STEP_MS = 5_000
FOLLOW_MS = 60_000
REMOVE_MS = 600_000

# A start so far past the stored time is no ordinary restart.
FAR_MS = 600_000

# While an agent runs, the stored time is no older than this.
RECENT_MS = 90_000

# A new time that moves on by less while it waits is the same one: the clock is put right slowly.
SLEW_MS = 60_000


class ClockReading(NamedTuple):
    """Both clocks at one moment."""

    wall: int
    boot: int


class Followed(NamedTuple):
    """A time that follows the wall clock. ``ms``: the time, at ``boot`` by the boot clock.

    ``lead``: wall minus boot clock of a new time that waits; None: there is none. ``since``: time
    by the boot clock from which on the new time has stood.
    """

    ms: int
    boot: int
    lead: int | None = None
    since: int = 0

    def left(self, wait: int) -> int:
        """Return how long the new time must still stand; 0: none waits."""
        return 0 if self.lead is None else max(1, self.since + wait - self.boot)


class Guarded(NamedTuple):
    """``times``: for stamps, arrival times, time-outs, and expiry in reads. ``removals``: see
    ``removal_ms``. ``ages``: of entries written before steps.
    """

    times: Followed
    removals: Followed
    ages: Ages


class Saved(NamedTuple):
    """The guarded time as a store keeps it for other agents and later starts.

    ``wall``: the wall clock at that moment. ``times_left`` and ``removals_left``: see ``left``.
    ``ages``: see ``Ages.dump``.
    """

    wall: int
    times: int
    removals: int
    times_left: int
    removals_left: int
    ages: str = ""


def begin(reading: ClockReading, saved: Saved | None = None) -> Guarded:
    """Return the guarded time at a start.

    A start soon after the stored time continues, with a saved pause. A start far past it is a step:
    most stops are long, but the clock may be wrong. A start before it dates by the wall clock at
    once, as the stored time may be wrong, but removes nothing for REMOVE_MS.
    """
    now = Followed(*reading)
    if saved is None:
        return Guarded(now, now, Ages(since=reading.wall))
    ages = Ages.load(saved.ages, min(saved.times, reading.wall))
    passed = reading.wall - saved.wall
    if 0 <= passed <= FAR_MS:
        times = _resumed(saved.times, saved.times_left, passed, reading, FOLLOW_MS)
        removals = _resumed(saved.removals, saved.removals_left, passed, reading, REMOVE_MS)
        return Guarded(times, removals, ages)
    if -STEP_MS < reading.wall - saved.times <= FAR_MS:
        return Guarded(now, now, ages)
    if -STEP_MS < reading.wall - saved.removals <= FAR_MS:  # times had followed a wrong clock
        return Guarded(now, now, ages.stepped(saved.times, reading.wall).believed())
    removals = Followed(saved.removals, reading.boot, reading.wall - reading.boot, reading.boot)
    seen = max(0, saved.wall - saved.times) if saved.times_left else 0
    ages = ages.restarted(saved.times, seen)
    if reading.wall < saved.times:
        return Guarded(now, removals, ages.stepped(saved.times, reading.wall))
    return Guarded(removals._replace(ms=saved.times), removals, ages)


def follow(guarded: Guarded, reading: ClockReading) -> Guarded:
    """Return the guarded time if the wall clock is right. Ages do not change."""
    now = Followed(*reading)
    return Guarded(now, now, _aged(guarded, now).believed())


def is_other(before: Followed, after: Followed) -> bool:
    """Return whether another new time waits. ``lead`` moves by some ms with each reading."""
    if before.lead is None or after.lead is None:
        return before.lead != after.lead
    return before.since != after.since or abs(before.lead - after.lead) >= STEP_MS


def is_recent(saved: Saved, wall: int) -> bool:
    """Return whether a running agent has saved this."""
    return 0 <= wall - saved.wall < RECENT_MS


def judge(guarded: Guarded, reading: ClockReading) -> Guarded:
    """Return the guarded time at a later reading."""
    times = _follow(guarded.times, reading, FOLLOW_MS)
    removals = _follow(guarded.removals, reading, REMOVE_MS)
    if times.lead is not None and removals.lead is None:
        # The wall clock came back to the time of the removals.
        times = removals
    ages = _aged(guarded, times)
    if removals.lead is None and _is_ahead(guarded.removals):
        # After a start ahead of the saved time, the length of the stop is known now. A start before
        # it tells that with a later step ahead only.
        ages = ages.believed()
    return Guarded(times, removals, ages)


def removal_ms(guarded: Guarded, wall: int) -> int:
    """Return the time for removals by age: the earliest possible one."""
    return min(guarded.removals.ms, guarded.times.ms, wall)


def lead(newest_ms: int, now_ms: int) -> int:
    """Return by how much a time in the store leads the guarded one; 0 if it may."""
    ahead = newest_ms - now_ms
    return ahead if ahead > MAX_LEAD_MS else 0


def save(guarded: Guarded, wall: int) -> Saved:
    times, removals, ages = guarded
    left = times.left(FOLLOW_MS), removals.left(REMOVE_MS)
    return Saved(wall, times.ms, removals.ms, *left, ages.dump())


def _is_ahead(followed: Followed) -> bool:
    """Return whether a later time waits."""
    return followed.lead is not None and followed.lead > followed.ms - followed.boot


def _aged(before: Guarded, times: Followed) -> Ages:
    """Return the ages when the time for stamps is another one."""
    runs_on = before.times.ms + times.boot - before.times.boot
    is_step = abs(times.ms - runs_on) >= STEP_MS
    return before.ages.stepped(runs_on, times.ms) if is_step else before.ages


def _follow(followed: Followed, reading: ClockReading, wait: int) -> Followed:
    boot = max(reading.boot, followed.boot)
    runs_on = followed.ms + boot - followed.boot
    if abs(reading.wall - runs_on) < STEP_MS:
        return Followed(max(followed.ms, reading.wall), boot)
    lead, own = reading.wall - boot, runs_on - boot
    waits = followed.lead
    if waits is None or abs(lead - waits) >= SLEW_MS or (lead > own) != (waits > own):
        return Followed(runs_on, boot, lead, boot)
    # The nearer one of two such times has stood since the first of them came.
    nearest = min(lead, waits, key=lambda each: abs(each - own))
    if boot - followed.since < wait:
        return Followed(runs_on, boot, nearest, followed.since)
    if abs(lead - nearest) < STEP_MS:
        return Followed(reading.wall, boot)
    return Followed(nearest + boot, boot, lead, boot)


def _resumed(ms: int, left: int, passed: int, reading: ClockReading, wait: int) -> Followed:
    """Continue a pause that has ``left``. Time in which no agent looked does not count."""
    if not left:
        return Followed(*reading)
    stood = wait - left + (passed if passed <= RECENT_MS else 0)
    lead = reading.wall - reading.boot
    return Followed(ms + passed, reading.boot, lead, reading.boot - stood)
