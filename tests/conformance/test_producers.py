"""Every producer shows the same behaviour."""

import pytest

from tests.conformance import producer_input_scenarios, producer_scenarios
from tests.conformance.conftest import Outcomes
from tests.conformance.judge import judge
from tests.conformance.play import Scenario

SCENARIOS = [*producer_scenarios.SCENARIOS, *producer_input_scenarios.SCENARIOS]


@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        pytest.param(client, scenario, id=f"{client}-{scenario.name}")
        for scenario in SCENARIOS
        for client in scenario.clients()
    ],
)
def test_producer(client: str, scenario: Scenario, outcomes: Outcomes) -> None:
    judge(scenario, outcomes[client, scenario.name])
