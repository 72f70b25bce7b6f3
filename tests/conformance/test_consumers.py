"""Every consumer shows the same behaviour."""

import pytest

from tests.conformance import (
    answer_scenarios,
    redirect_scenarios,
    shard_scenarios,
    state_scenarios,
    stream_scenarios,
)
from tests.conformance.conftest import Outcomes
from tests.conformance.judge import judge
from tests.conformance.play import Scenario

SCENARIOS = [
    *stream_scenarios.SCENARIOS,
    *answer_scenarios.SCENARIOS,
    *redirect_scenarios.SCENARIOS,
    *shard_scenarios.SCENARIOS,
    *state_scenarios.SCENARIOS,
]


@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        pytest.param(client, scenario, id=f"{client}-{scenario.name}")
        for scenario in SCENARIOS
        for client in scenario.clients()
    ],
)
def test_consumer(client: str, scenario: Scenario, outcomes: Outcomes) -> None:
    judge(scenario, outcomes[client, scenario.name])
