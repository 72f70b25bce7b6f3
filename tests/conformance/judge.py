"""Compare an outcome with its scenario."""

import re
from datetime import datetime
from typing import Any

from tests.conformance.play import Outcome, Scenario

# A timer of Node may fire a millisecond early.
_EARLY_SECONDS = 0.005


def judge(scenario: Scenario, outcome: Outcome) -> None:
    """Raise AssertionError with the whole outcome."""
    try:
        _judge(scenario, outcome)
    except AssertionError as error:
        raise AssertionError(f"{scenario.name}: {error}\n{outcome}") from None


def _judge(scenario: Scenario, outcome: Outcome) -> None:
    assert outcome.exit is not None, "did not end in time"
    assert not outcome.junk, "stdout is not JSON lines"
    events = [_normal(event) for event in outcome.events]
    wanted = [_normal(event) for event in scenario.events]
    assert scenario.prints_taken or events == wanted, _first_difference(events, wanted)
    assert outcome.exit == scenario.exit, f"exit code {outcome.exit} instead of {scenario.exit}"
    if scenario.positions is not None:
        positions = [request.headers.get("last-event-id") for request in outcome.requests]
        assert positions == list(scenario.positions), f"positions asked for: {positions}"
    if scenario.batches is not None:
        batches = [request.ids for request in outcome.requests]
        assert batches == [list(batch) for batch in scenario.batches], f"batches: {batches}"
    for number, least in scenario.gaps.items():
        gap = outcome.requests[number + 1].at - outcome.requests[number].answered
        assert gap >= least - _EARLY_SECONDS, (
            f"only {gap:.3f} s between requests {number} and {number + 1}"
        )
    for pattern in scenario.says:
        assert re.search(pattern, outcome.stderr, re.IGNORECASE), f"stderr lacks {pattern!r}"
    for secret in scenario.hides:
        assert secret not in outcome.stderr, f"stderr shows {secret!r}"
    for trace in (
        "Traceback (most recent call last)",
        "Stack trace:",
        "goroutine ",
        "    at ",
        "PHP Warning",
        "Warning: ",
    ):
        assert trace not in outcome.stderr, f"stderr has {trace!r}"
    if scenario.state is not None:
        assert (outcome.state or "").removesuffix("\n") == scenario.state, (
            f"the state file holds {outcome.state!r}"
        )
    if scenario.check:
        scenario.check(outcome)


def _normal(event: Any) -> dict[str, Any]:
    """Decode the time, so that all precisions are equal. It must end with Z."""
    normal = dict(event)
    if isinstance(time := normal.get("timestamp"), str) and time.endswith("Z"):
        normal["timestamp"] = datetime.fromisoformat(time)
    return normal


def _first_difference(events: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> str:
    for number, (event, want) in enumerate(zip(events, wanted, strict=False)):
        if event != want:
            return f"event {number} is {str(event)[:300]} instead of {str(want)[:300]}"
    return f"{len(events)} events instead of {len(wanted)}"
