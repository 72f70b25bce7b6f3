"""The member ``clock`` of /status."""

from oplogd.clock.guard import GuardedClock
from oplogd.clock.keeper import ClockKeeper
from oplogd.clock.rule import Saved
from oplogd.web.figures.clock import clock_members, clock_warnings
from tests.kits.clock.virtual import START_MS, VirtualClock


class NoStore:
    async def keep_clock(self) -> None: ...

    async def ahead_ms(self) -> int:
        return 0


def test_an_ordinary_stop_is_no_pause_and_no_warning_but_a_step_after_it_is() -> None:
    clock = VirtualClock()
    guarded = GuardedClock(clock.clock)
    keeper = ClockKeeper(NoStore(), clock.clock)
    then = START_MS - 10 * 3_600_000
    guarded.begin(Saved(then, then, then, 0, 0))
    members = clock_members(guarded, keeper)
    assert (members["paused"], members["waiting"]) == (0, ["times", "removals"])
    assert clock_warnings(guarded, keeper) == []
    clock.jump(3600)
    assert clock_members(guarded, keeper)["paused"] == 1
    assert len(clock_warnings(guarded, keeper)) == 1
