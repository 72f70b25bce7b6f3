"""No request holds the loop or fills the memory, whatever its few kilobytes unpack to.

All values at all endpoints, random mixtures of them and clocks that jump: tests/soak/test_hostile.
"""

import time
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from tests.kits.agents.agent import Agent
from tests.kits.web.hostile import BODY, ENDPOINTS, OTHERS, TOPIC, VALUES, Hostile, case, send
from tests.kits.web.memory import Memory

MB = 1 << 20
# CPU time of one turn, on a machine that decodes a full body in the time of REFERENCE.
TURN_SECONDS = 0.05
REFERENCE = 0.027


def allowed_turn() -> float:
    """Return the longest turn on this machine, by the time of one decoding of a full body."""
    body = b"[" + b"[]," * (BODY // 3 - 1) + b"[]]"
    decode = msgspec.json.Decoder(msgspec.Raw).decode
    begun = time.process_time()
    decode(body)
    return TURN_SECONDS * max(1.0, (time.process_time() - begun) / REFERENCE)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        assert agent.request("PUT", TOPIC).status == 200
        for each in OTHERS:  # what is imported or made on first use
            send(agent, each._replace(body=lambda: b"", packed=False))
        yield agent


def each_endpoint_with_some_values() -> Iterable[Hostile]:
    """Yield three values for each endpoint, so that each value meets four endpoints."""
    names = [*VALUES]
    for index, endpoint in enumerate(ENDPOINTS):
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
