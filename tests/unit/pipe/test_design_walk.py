"""The walk of a message through the pipe, in internals/programs.md, names functions that exist."""

import ast
import re
from collections.abc import Iterator

from tests.kits.documents import pages
from tests.kits.paths import ROOT

# Names in the walk that are methods of every sink.
OF_SINKS = {"begin_copy", "end_copy", "write"}


def defined() -> Iterator[str]:
    """Yield the names of all functions and classes: alone, and as Class.method."""
    for path in (ROOT / "oplog_pipe").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name
                for method in node.body:
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{node.name}.{method.name}"
            elif isinstance(node, ast.FunctionDef):
                yield node.name


def test_the_walk_names_functions_that_exist() -> None:
    _, _, walk = pages.PROGRAMS.read_text().partition("**One message through the pipe**\n\n")
    names = set(re.findall(r"`([^`]+)`", walk.partition("\n\n")[0])) - OF_SINKS
    assert len(names) > 20
    assert names - set(defined()) == set()
