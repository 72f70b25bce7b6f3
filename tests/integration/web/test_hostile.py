"""No request holds the loop or fills the memory, whatever its few kilobytes unpack to.

All values at all endpoints, random mixtures of them and clocks that jump: tests/soak/test_hostile.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.web.hostile import (
    ENDPOINTS,
    LARGE,
    LARGE_TOPIC,
    MANY_UNDER_POINTER,
    MB,
    OTHERS,
    ROLLBACK,
    TOPIC,
    VALUES,
    Hostile,
    case,
    is_too_long,
    send,
)
from tests.kits.web.memory import Memory

# A turn counts as too long if it is so in each of these measurements.
MEASUREMENTS = 3


class Target:
    """An agent that takes the requests. Another one takes its place after a turn that was too long.

    The status shows a turn for a minute, so it would count for the next requests, too.
    """

    def __init__(self, folders: Iterator[Path]) -> None:
        self._folders = folders
        self._begin()

    def _begin(self) -> None:
        self.agent = Agent(next(self._folders))
        for topic in (TOPIC, LARGE_TOPIC):
            assert self.agent.request("PUT", topic).status == 200
        for each in OTHERS:  # modules and tables of the first use
            send(self.agent, each._replace(body=lambda: b"", packed=False))

    def renew(self) -> None:
        self.agent.kill()
        self._begin()

    def measures_too_long(self, hostile: Hostile) -> bool:
        """Send a request, and return whether it took a turn that was too long."""
        memory = Memory(self.agent)
        answer = send(self.agent, hostile)
        assert 200 <= answer.status < 500
        assert len(answer.body) <= hostile.answer_bytes
        assert memory.peak() <= 32 * MB
        if not is_too_long(self.agent):
            return False
        self.renew()
        return True


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    target = Target(tmp_path_factory.mktemp("agent") for _ in count())
    try:
        yield target
    finally:
        target.agent.kill()


def each_endpoint_with_some_values() -> Iterable[Hostile]:
    """Yield two values for each endpoint, and all of them where a snapshot is read."""
    names = [*VALUES]
    yield from (case("poll with a snapshot", name) for name in names)
    for index, endpoint in enumerate(sorted(ENDPOINTS.keys() - {"poll with a snapshot"})):
        for offset in range(2):
            yield case(endpoint, names[(2 * index + offset) % len(names)])


@pytest.mark.parametrize("hostile", [*each_endpoint_with_some_values(), *OTHERS], ids=str)
def test_a_request_costs_what_it_weighs(target: Target, hostile: Hostile) -> None:
    if hostile in LARGE:  # memory of former requests would be used again
        target.renew()
    assert not all(target.measures_too_long(hostile) for _ in range(MEASUREMENTS))


def test_a_rollback_of_many_messages_costs_little_memory(target: Target) -> None:
    target.renew()
    assert send(target.agent, MANY_UNDER_POINTER).status == 200
    memory = Memory(target.agent)
    assert send(target.agent, ROLLBACK).status == 200
    assert memory.peak() <= 4 * MB
