"""An agent of each module, and the operations that it stores during a test."""

from collections.abc import Iterator

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.web.connection import Growth


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


@pytest.fixture
def stored(agent: Agent) -> Growth:
    return Growth(agent)
