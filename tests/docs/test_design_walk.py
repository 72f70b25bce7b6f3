"""The walk in docs/internals/design.md names functions that exist."""

import ast
import re
from collections.abc import Iterator

from tests.kits.documents import pages
from tests.kits.paths import ROOT

# Names in the walk that are no functions or classes of the agent.
OTHERS = {"0", "reset", "GET /ops"}


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


def test_the_walk_names_functions_that_exist_and_has_at_most_30_lines() -> None:
    design = pages.DESIGN.read_text()
    (walk,) = re.findall(r"^## A walk through the code\n\n(.*?)\n+(?=^## )", design, re.M | re.S)
    names = set(re.findall(r"`([^`]+)`", walk)) - OTHERS
    assert len(names) > 25
    assert names - set(defined()) == set()
    assert len(walk.splitlines()) <= 30
