"""An agent, and the folder of a pipe that follows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    folder = tmp_path / "agent"
    folder.mkdir()
    with Agent(folder) as agent:
        yield agent
