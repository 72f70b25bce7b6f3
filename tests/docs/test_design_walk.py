"""The pages of docs/internals/ name functions and modules that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.documents import pages
from tests.kits.paths import ROOT

# Names in the walks that are no functions or classes of the agent.
OTHERS = {"0", "reset", "GET /ops"}
DESCRIBING = [
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted(pages.INTERNALS.glob("*.md")) if page.name != "benchmarks.md"),
]
# The modules that a table names without their folder.
SHORT = ("oplogd", "oplogd/store", "oplogd/stream", "oplog_pipe", "oplog_relay", "oplog_sync")
CLIENT = "clients/python/oplogc"


def defined() -> Iterator[str]:
    """Yield the names of all functions and classes: alone, as Class.method, as module.function."""
    for path in (ROOT / "oplogd").rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield node.name
                for method in node.body:
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{node.name}.{method.name}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
                yield f"{path.stem}.{node.name}"


def exists(name: str) -> bool:
    """Return whether a file or folder has this name, in the checkout or in a package."""
    places = [ROOT / folder / name for folder in ("", *SHORT, CLIENT)]
    return any(place.exists() or place.with_suffix(".py").is_file() for place in places)


def test_the_walks_name_functions_that_exist_and_have_at_most_30_lines() -> None:
    walks = [
        walk
        for page in sorted(pages.INTERNALS.glob("*.md"))
        for walk in re.findall(
            r"^## A walk through the code\n\n(.*?)\n*(?=^## |\Z)", page.read_text(), re.M | re.S
        )
    ]
    assert len(walks) == 3
    names = {name for walk in walks for name in re.findall(r"`([^`]+)`", walk)} - OTHERS
    paths = {name for name in names if "/" in name}
    assert len(names - paths) > 25
    assert names - paths - set(defined()) == set()
    assert {name for name in paths if not exists(name)} == set()
    assert sum(len(walk.splitlines()) for walk in walks) <= 30


@pytest.mark.parametrize("page", DESCRIBING, ids=lambda page: page.name)
def test_the_tables_name_modules_and_folders_that_exist(page: Path) -> None:
    rows = "\n".join(re.findall(r"^\| .+", page.read_text(), re.MULTILINE))
    named = set(re.findall(r"`([\w./-]+(?:\.py|/))`", rows))
    assert {name for name in named if not exists(name)} == set()
