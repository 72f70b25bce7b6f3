"""The page on clients names every limit that the table has."""

from tests.conformance import (
    answer_scenarios,
    producer_input_scenarios,
    producer_scenarios,
    redirect_scenarios,
    shard_scenarios,
    state_scenarios,
    stream_scenarios,
)
from tests.conformance.clients import EVERY_CLIENT
from tests.conformance.limits import LIMITS
from tests.kits.documents import pages

CONSUMER_SCENARIOS = [
    *stream_scenarios.SCENARIOS,
    *answer_scenarios.SCENARIOS,
    *redirect_scenarios.SCENARIOS,
    *shard_scenarios.SCENARIOS,
    *state_scenarios.SCENARIOS,
]
PRODUCER_SCENARIOS = [*producer_scenarios.SCENARIOS, *producer_input_scenarios.SCENARIOS]
SCENARIOS = [*CONSUMER_SCENARIOS, *PRODUCER_SCENARIOS]


def test_every_scenario_has_a_name_of_its_own() -> None:
    for scenarios in (CONSUMER_SCENARIOS, PRODUCER_SCENARIOS):
        names = [scenario.name for scenario in scenarios]
        assert len(set(names)) == len(names)


def test_a_scenario_that_leaves_a_client_out_is_a_limit() -> None:
    left_out = {
        scenario.name: {client for client in EVERY_CLIENT if client not in scenario.only}
        for scenario in SCENARIOS
        if scenario.only
    }
    assert left_out == {scenario: set(clients) for scenario, (clients, _) in LIMITS.items()}


def test_every_limit_is_documented_and_no_other() -> None:
    page = pages.CLIENTS.read_text()
    section = page.partition("## Behaviours of all clients\n")[2].partition("\n## ")[0]
    table = section.partition("| client | limit |\n")[2]
    documented = [line for line in table.splitlines()[1:] if line.startswith("|")]
    sentences = {sentence for _, sentence in LIMITS.values()}
    assert len(documented) == len(sentences)
    for sentence in sentences:
        assert any(sentence in line for line in documented), sentence
