"""The rule of the guarded time: what a wall clock may do to the times of a store. No I/O.

A wall clock that was set wrong must not date messages, or remove any. So it is compared with the
boot clock, which nobody sets. A difference of less than STEP_MS is taken at once. After a larger
one, a step, the guarded time runs on at the pace of the boot clock until the new time has stood for
long enough: FOLLOW_MS for times that are given to entries, REMOVE_MS for removals by age.

All times are ms. Those of the wall clock count from 1970, those of the boot clock from any moment.
"""

from typing import NamedTuple

STEP_MS = 5_000
FOLLOW_MS = 60_000
REMOVE_MS = 600_000

# A start so far past the stored time is no ordinary restart.
FAR_MS = 600_000

# A stamp leads the guarded time by no more than this, except behind a head that is ahead already.
MAX_LEAD_MS = 60_000


class Reading(NamedTuple):
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
    """``times``: for stamps, arrival times, time-outs, and what reads hide. ``removals``: see
    ``removal_ms``.
    """

    times: Followed
    removals: Followed


class Saved(NamedTuple):
    """The guarded time as a store keeps it for other agents and later starts.

    ``wall``: the wall clock at that moment. ``times_left`` and ``removals_left``: see ``left``.
    """

    wall: int
    times: int
    removals: int
    times_left: int
    removals_left: int


def begin(reading: Reading, saved: Saved | None = None) -> Guarded:
    """Return the guarded time at a start.

    A pause that another agent has saved goes on. A time far past the saved one dates entries at
    once, but removes nothing before it has stood.
    """
    now = Followed(*reading)
    if saved is None:
        return Guarded(now, now)
    times = _resumed(saved, saved.times, saved.times_left, reading, FOLLOW_MS)
    if not saved.removals_left and reading.wall - saved.wall > FAR_MS:
        lead = reading.wall - reading.boot
        return Guarded(times, Followed(saved.removals, reading.boot, lead, reading.boot))
    removals = _resumed(saved, saved.removals, saved.removals_left, reading, REMOVE_MS)
    return Guarded(times, removals)


def judge(guarded: Guarded, reading: Reading) -> Guarded:
    """Return the guarded time at a later reading."""
    times = _follow(guarded.times, reading, FOLLOW_MS)
    removals = _follow(guarded.removals, reading, REMOVE_MS)
    if times.lead is not None and removals.lead is None:
        # The wall clock came back to the time that removals have kept.
        return Guarded(removals, removals)
    return Guarded(times, removals)


def removal_ms(guarded: Guarded, wall: int) -> int:
    """Return the time that removals by age go by: the earliest that may be right."""
    return min(guarded.removals.ms, guarded.times.ms, wall)


def lead(newest_ms: int, now_ms: int) -> int:
    """Return by how much a time in the store leads the guarded one; 0 if it may."""
    ahead = newest_ms - now_ms
    return ahead if ahead > MAX_LEAD_MS else 0


def save(guarded: Guarded, wall: int) -> Saved:
    times, removals = guarded
    return Saved(wall, times.ms, removals.ms, times.left(FOLLOW_MS), removals.left(REMOVE_MS))


def _follow(followed: Followed, reading: Reading, wait: int) -> Followed:
    boot = max(reading.boot, followed.boot)
    runs_on = followed.ms + boot - followed.boot
    if abs(reading.wall - runs_on) < STEP_MS:
        return Followed(max(followed.ms, reading.wall), boot)
    lead = reading.wall - boot
    if followed.lead is None or abs(lead - followed.lead) >= STEP_MS:
        return Followed(runs_on, boot, lead, boot)
    if boot - followed.since >= wait:
        return Followed(reading.wall, boot)
    return Followed(runs_on, boot, followed.lead, followed.since)


def _resumed(saved: Saved, ms: int, left: int, reading: Reading, wait: int) -> Followed:
    """Continue a pause that has ``left``, unless the wall clock came back or has stood."""
    passed = reading.wall - saved.wall
    if not 0 <= passed < left:
        return Followed(*reading)
    lead = reading.wall - reading.boot
    return Followed(ms + passed, reading.boot, lead, reading.boot - (wait - left) - passed)
