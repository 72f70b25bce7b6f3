"""Every producer shows the same behaviour."""

import pytest

from tests.conformance import producer_input_scenarios, producer_scenarios
from tests.conformance.clients import PRODUCERS
from tests.conformance.conftest import Outcomes
from tests.conformance.judge import judge
from tests.conformance.play import Scenario

SCENARIOS = [*producer_scenarios.SCENARIOS, *producer_input_scenarios.SCENARIOS]
_CASES = [
    (client, scenario)
    for scenario in SCENARIOS
    for client in scenario.only or PRODUCERS
    if not (scenario.python_once and client == "python-async")
]


@pytest.mark.parametrize(
    ("client", "scenario"), _CASES, ids=[f"{client}-{scenario.name}" for client, scenario in _CASES]
)
def test_producer(client: str, scenario: Scenario, outcomes: Outcomes) -> None:
    judge(scenario, outcomes[client, scenario.name])
