"""The marks for the needs of a test. They follow from its folder, fixtures and parameters.

A test that starts a program without the mark for it fails, and so does a unit test that starts
any process or opens a network connection. Marks that no rule can give are set by hand.
"""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import PurePath
from typing import Any

import pytest

FOLDERS = {
    "browser/": "browser",
    "integration/mongo/": "mongo",
    "integration/spark/": "spark",
    "soak/": "slow",
}
FIXTURES = {
    "browser": "browser",
    "capped_url": "mongo",
    "ferret": "mongo",
    "go_example": "go",
    "java": "mongo",
    "node": "node",
    "opensearch": "opensearch",
    "php_example": "php",
    "plain_url": "mongo",
    "own_postgres": "postgres",
    "postgres": "postgres",
    "spark": "spark",
}
PARAMETERS = {
    "capped": "mongo",
    "elasticsearch": "opensearch",
    "go": "go",
    "go_example": "go",
    "javascript": "node",
    "js": "node",
    "mongo-capped": "mongo",
    "mongo-plain": "mongo",
    "mongo-plain-small": "mongo",
    "mongodb": "mongo",
    "php": "php",
    "php_example": "php",
    "plain": "mongo",
    "plain-java": "mongo",
    "postgres": "postgres",
}
# Suites and parts in which a parameter of these names means one of the needs above.
CHOOSING = {"clients", "conformance", "contract", "e2e", "pipe", "relay", "spark", "stream"}
# Program -> the mark of a test that starts it. Agents and shells need no mark.
PROGRAMS = {
    "chromium": "browser",
    "chromium-headless-shell": "browser",
    "ferretdb": "mongo",
    "go": "go",
    "initdb": "postgres",
    "nginx": "nginx",
    "node": "node",
    "npm": "node",
    "php": "php",
    "postgres": "postgres",
    "spark-submit": "spark",
}
# Minutes for each long run; without it tests/soak/ is left out.
SOAK = "OPLOG_SOAK_MINUTES"
# Folders of the unit tests. A test in them that needs a process or a server has a mark for it.
UNIT = ("unit/", "contract/store/")
_OF_PROCESSES = {"process", *FIXTURES.values(), *PROGRAMS.values()}
_NETWORK = ("socket.bind", "socket.connect", "socket.getaddrinfo")
_STARTS = ("os.fork", "os.posix_spawn", "os.system", "subprocess.Popen")


def needs(path: str, fixtures: list[str], parameters: Mapping[str, object]) -> set[str]:
    """Return the marks that follow from a test's path below tests/, fixtures and parameters."""
    found = {mark for folder, mark in FOLDERS.items() if path.startswith(folder)}
    found |= {FIXTURES[name] for name in fixtures if name in FIXTURES}
    if not CHOOSING.isdisjoint(path.split("/")[:2]):
        values = [*parameters.values()]
        for name in ("holder", "language"):
            values += [getattr(value, name, None) for value in parameters.values()]
        found |= {
            PARAMETERS[each] for each in values if isinstance(each, str) and each in PARAMETERS
        }
    return found


@cache
def _relative(path: PurePath, root: PurePath) -> str:
    return path.relative_to(root).as_posix()


def mark(item: pytest.Item, root: PurePath) -> None:
    path = _relative(item.path, root)
    call = getattr(item, "callspec", None)
    for name in needs(path, getattr(item, "fixturenames", []), call.params if call else {}):
        item.add_marker(name)
    marks = {each.name for each in item.iter_markers()}
    if path.startswith(UNIT) and marks.isdisjoint(_OF_PROCESSES):
        item.add_marker("unit")


class Guard:
    """Fails a test that uses more than its marks tell."""

    def __init__(self) -> None:
        self._allowed: set[str] | None = None
        self._is_unit = False
        self._found: list[str] = []
        # Threads of earlier tests that still end, such as a client's of MongoDB.
        self._earlier: set[int | None] = set()
        sys.addaudithook(self._audit)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        # A fixture of a whole module may start a program for another test of the module.
        self._of_module: dict[str, set[str]] = {}
        for item in session.items:
            marks = self._of_module.setdefault(str(item.path), set())
            marks.update(each.name for each in item.iter_markers())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        with self._watch(item, self._of_module[str(item.path)]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        with self._watch(item, {each.name for each in item.iter_markers()}):
            return (yield)

    @contextmanager
    def _watch(self, item: pytest.Item, allowed: set[str]) -> Iterator[None]:
        self._earlier = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
        self._allowed = allowed
        self._is_unit = item.get_closest_marker("unit") is not None
        try:
            yield
        finally:
            self._allowed = None
            found, self._found = self._found, []
        if found:
            pytest.fail("; ".join(dict.fromkeys(found)), pytrace=False)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._allowed is None or threading.get_ident() in self._earlier:
            return
        if self._is_unit and event in (*_NETWORK, *_STARTS):
            self._found.append(f"a unit test used {event}: see UNIT in tests/kits/run/needs.py")
        if event == "subprocess.Popen":
            name = needed_by(*arguments[:2])
            if name is not None and name not in self._allowed:
                self._found.append(f"this test needs the mark {name}")


def needed_by(executable: object, arguments: object) -> str | None:
    """Return the mark for starting this program, given as to ``subprocess.Popen``."""
    first = arguments if isinstance(arguments, str | bytes | os.PathLike) else None
    if first is None and isinstance(arguments, list | tuple):
        first = arguments[0]
    program = executable if isinstance(executable, str | bytes | os.PathLike) else first
    path = PurePath(os.fsdecode(program or ""))
    if "playwright" in path.parts:  # brings a Node of its own
        return "browser"
    return PROGRAMS.get(path.name)
