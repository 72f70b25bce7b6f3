import asyncio
from pathlib import Path

import pytest

from tests.conformance.clients import build_go
from tests.conformance.play import Outcome, Scenario, play_all

Outcomes = dict[tuple[str, str], Outcome]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Play the scenarios of all chosen tests of the module together, which saves time."""
    runs: list[tuple[str, Scenario]] = []
    for item in request.session.items:
        if (
            isinstance(item, pytest.Function)
            and item.module is request.module
            and "scenario" in item.callspec.params
        ):
            client, scenario = item.callspec.params["client"], item.callspec.params["scenario"]
            assert isinstance(client, str)
            assert isinstance(scenario, Scenario)
            runs.append((client, scenario))
    folder = tmp_path_factory.mktemp("conformance")
    go_folder: Path = folder / "go"
    go_folder.mkdir()
    if roles := {each.role for client, each in runs if "go" in (client, each.holder)}:
        build_go(go_folder, roles)
    return asyncio.run(play_all(runs, go_folder, folder))
