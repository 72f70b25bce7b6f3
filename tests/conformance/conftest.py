import asyncio
from pathlib import Path

import pytest

from tests.conformance.clients import build_go
from tests.conformance.play import Outcome, Row, play_all

Outcomes = dict[tuple[str, str], Outcome]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """The outcome of every chosen test of the module, by client and row: they are played together, to save time."""
    runs: list[tuple[str, Row]] = []
    for item in request.session.items:
        if (
            isinstance(item, pytest.Function)
            and item.module is request.module
            and "row" in item.callspec.params
        ):
            client, row = item.callspec.params["client"], item.callspec.params["row"]
            assert isinstance(client, str)
            assert isinstance(row, Row)
            runs.append((client, row))
    folder = tmp_path_factory.mktemp("conformance")
    go_folder: Path = folder / "go"
    go_folder.mkdir()
    if any("go" in (client, row.holder) for client, row in runs):
        build_go(go_folder)
    return asyncio.run(play_all(runs, go_folder, folder))
