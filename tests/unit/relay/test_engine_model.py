"""Two relays of one group in random schedules with faults: no reversal, nothing missing.

``OPLOG_TEST_EXAMPLES`` sets the number of schedules.
"""

import pytest

from tests.kits.models.properties import EXAMPLES
from tests.kits.relay.schedule import Schedule
from tests.unit.relay.broken import BROKEN


@pytest.mark.thorough
@pytest.mark.parametrize("tens", range(max(1, EXAMPLES // 10)))
def test_no_schedule_reverses_a_key_or_loses_a_row(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        assert (seed, Schedule(seed).run()) == (seed, [])


def _is_noticed(seeds: range, *, judges_on_arrival: bool = False) -> bool:
    """Return whether a schedule shows a wrong order or a missing row in the log."""
    return any(
        problem.startswith("key ")
        for seed in seeds
        for problem in Schedule(seed, judges_on_arrival=judges_on_arrival).run()
    )


@pytest.mark.thorough
@pytest.mark.parametrize("rule", BROKEN)
def test_the_model_notices_an_engine_or_a_database_with_a_broken_rule(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replacements, seeds = BROKEN[rule]
    for name, replacement in replacements.items():
        monkeypatch.setattr(name, replacement)
    assert _is_noticed(seeds)


def test_the_model_notices_an_agent_that_judges_fences_on_arrival() -> None:
    assert _is_noticed(range(40), judges_on_arrival=True)
