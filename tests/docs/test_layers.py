"""The table of internals/design.md agrees with import-linter's contracts, and each can fail."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.documents import pages
from tests.kits.paths import ROOT
from tests.kits.processes.environment import python_program

PACKAGES = (
    "oplogd", "oplog_kit", "oplog_pipe", "oplog_relay", "oplog_sync", "pyspark_oplog",
    "clients/python/oplogc",
)  # fmt: skip
CONTRACTS: dict[str, dict[str, Any]] = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}
FORBIDDEN = {id_: each for id_, each in CONTRACTS.items() if each["type"] == "forbidden"}
LAYERS = {id_: each for id_, each in CONTRACTS.items() if each["type"] == "layers"}


def test_each_row_of_the_table_is_a_contract() -> None:
    text = pages.DESIGN.read_text()
    table = text.partition("| does not know |\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[1:]]
    assert len(rows) > 5
    named = [contract["name"] for contract in FORBIDDEN.values()]
    assert named == [f"{folder}: {unknown}" for folder, _, unknown in rows]


def test_each_drawing_is_a_contract() -> None:
    text = pages.DESIGN.read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    drawn = re.findall(r"^\*\*`([^`]+)/`\*\*\n\n```\n(.+?)\n```$", text, re.MULTILINE | re.DOTALL)
    assert [(folder.replace("/", "."), layers.split("\n")) for folder, layers in drawn] == [
        (contract["containers"][0], contract["layers"]) for contract in LAYERS.values()
    ]


def test_each_module_of_agent_and_client_that_other_packages_import_is_in_the_table() -> None:
    text = pages.DESIGN.read_text().partition("| module | imported by |\n")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([^`]+)`", row) for row in text.splitlines()[1:]]
    graph = grimp.build_graph(*(Path(package).name for package in PACKAGES), cache_dir=None)
    users = {
        module: sorted({each.partition(".")[0] for each in importers} - {module.partition(".")[0]})
        for module in sorted(graph.modules)
        if module.partition(".")[0] in ("oplogd", "oplogc")
        and (importers := graph.find_modules_that_directly_import(module))
    }
    assert rows == [[module, *packages] for module, packages in users.items() if packages]


def lint_imports(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python_program("lint-imports"), "--no-cache", "--no-logo"],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{folder / 'clients/python'}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder


@pytest.fixture(scope="module")
def complaints(copy: Path) -> dict[str, str]:
    """Return the complaint for each contract after a module of it imports all that it forbids."""
    before: dict[Path, str] = {}
    for contract in FORBIDDEN.values():
        source, *_ = contract["source_modules"]
        place = copy / ("clients/python/oplogc" if source == "oplogc" else source.replace(".", "/"))
        module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        before.setdefault(module, module.read_text())
        with module.open("a") as file:
            file.writelines(f"import {each}\n" for each in contract["forbidden_modules"])
    done = lint_imports(copy)
    for module, text in before.items():
        module.write_text(text)
    assert done.returncode == 1, done.stdout
    # An arrow up is an error of its drawing, and a circle.
    assert {LAYERS["layers of oplogd"]["name"], CONTRACTS["circles"]["name"]} <= set(
        re.findall(r"^(.+)\n-{9,}$", done.stdout, re.MULTILINE)
    )
    # A complaint has the name of its contract, underlined, as a title.
    _, *parts = re.split(r"^(.+)\n-{9,}$", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_copy_keeps_all_contracts(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in re.sub(r"\s+", " ", done.stdout)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_contract_fails_for_each_module_that_it_forbids(
    name: str, complaints: dict[str, str]
) -> None:
    source, *_ = CONTRACTS[name]["source_modules"]
    told = complaints[CONTRACTS[name]["name"]]
    for each in CONTRACTS[name]["forbidden_modules"]:
        assert f"{source} is not allowed to import {each}:\n" in told
        # Directly: the other contracts' imports add detours.
        assert f"-   {source} -> {each} (l." in told
