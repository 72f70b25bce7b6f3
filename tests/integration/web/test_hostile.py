"""No request holds the loop or fills the memory, whatever its few kilobytes unpack to.

All values at all endpoints, random mixtures of them and clocks that jump: tests/soak/test_hostile.
"""

from collections.abc import Iterable, Iterator

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.web.hostile import (
    ENDPOINTS,
    LARGE_TOPIC,
    MB,
    OTHERS,
    TOPIC,
    VALUES,
    Hostile,
    allowed_turn,
    case,
    send,
)
from tests.kits.web.memory import Memory


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        for topic in (TOPIC, LARGE_TOPIC):
            assert agent.request("PUT", topic).status == 200
        for each in OTHERS:  # what is imported or made on first use
            send(agent, each._replace(body=lambda: b"", packed=False))
        yield agent


def each_endpoint_with_some_values() -> Iterable[Hostile]:
    """Yield three values for each endpoint, and all of them where a snapshot is read."""
    names = [*VALUES]
    yield from (case("poll with a snapshot", name) for name in names)
    for index, endpoint in enumerate(sorted(ENDPOINTS.keys() - {"poll with a snapshot"})):
        for offset in range(3):
            yield case(endpoint, names[(3 * index + offset) % len(names)])


@pytest.mark.parametrize("hostile", [*each_endpoint_with_some_values(), *OTHERS], ids=str)
def test_a_request_costs_what_it_weighs(agent: Agent, hostile: Hostile) -> None:
    memory = Memory(agent)
    answer = send(agent, hostile)
    assert 200 <= answer.status < 500
    assert len(answer.body) <= 16 * 1024
    assert memory.peak() <= 32 * MB
    assert agent.status()["loop"]["longest_turn_seconds_last_minute"] <= allowed_turn()
