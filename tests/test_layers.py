"""The table of docs/design.md agrees with import-linter's contracts, and each contract can fail."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.kits.processes.environment import python_program

PACKAGES = (
    "oplogd", "oplog_kit", "oplog_pipe", "oplog_relay", "oplog_sync", "clients/python/oplogc",
)  # fmt: skip
CONTRACTS: dict[str, dict[str, Any]] = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}
# Contracts of one module that is too small for a row of the table.
WITHOUT_ROW = {"values"}


def test_each_row_of_the_table_is_a_contract() -> None:
    text = (ROOT / "docs/design.md").read_text()
    table = text.partition("| does not know |\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[1:]]
    assert len(rows) > 5
    named = [CONTRACTS[each]["name"] for each in CONTRACTS if each not in WITHOUT_ROW]
    assert named == [f"{folder}: {unknown}" for folder, _, unknown in rows]


def lint_imports(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python_program("lint-imports"), "--no-cache", "--no-logo", *arguments],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{folder / 'clients/python'}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
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


def test_the_copy_keeps_all_contracts(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in re.sub(r"\s+", " ", done.stdout)


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_fails_for_each_module_that_it_forbids(name: str, copy: Path) -> None:
    source, *_ = CONTRACTS[name]["source_modules"]
    forbidden = CONTRACTS[name]["forbidden_modules"]
    place = copy / ("clients/python/oplogc" if source == "oplogc" else source.replace(".", "/"))
    module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = module.read_text()
    module.write_text(text + "".join(f"import {each}\n" for each in forbidden))
    try:
        done = lint_imports(copy, "--contract", name)
    finally:
        module.write_text(text)
    assert done.returncode == 1, done.stdout
    told = re.sub(r"\s+", " ", done.stdout)
    for each in forbidden:
        assert f"{source} is not allowed to import {each}:" in told
