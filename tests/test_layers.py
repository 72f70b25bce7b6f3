"""The table of docs/design.md: each part of the code imports nothing of what it does not know."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_IO = {
    "asyncio",
    "socket",
    "sqlite3",
    "pymongo",
    "bson",
    "threading",
    "oplogd.store",
    "oplogd.ingest",
    "oplogd.web",
}
MUST_NOT_KNOW = {
    "oplogd/operation.py": _IO,
    "oplogd/event_id.py": _IO,
    "oplogd/nesting.py": _IO,
    "oplogd/values.py": {"asyncio", "oplogd.web", "oplogd.ingest", "oplogd.stream", "oplogd.store"},
    "oplogd/ingest": {"oplogd.stream", "oplogd.web"},
    "oplogd/store": {
        "oplogd.ingest",
        "oplogd.stream",
        "oplogd.web",
        "oplogd.settings",
        "starlette",
        "uvicorn",
    },
    "oplogd/stream": {
        "oplogd.ingest",
        "oplogd.web",
        "oplogd.settings",
        "sqlite3",
        "pymongo",
        "bson",
    },
    "oplogd/web": {"oplogd.store.sqlite", "oplogd.store.mongo", "sqlite3", "pymongo", "bson"},
    "oplog_sync": {"oplogd.ingest", "oplogd.stream", "oplogd.web", "oplogd.agent", "oplogd.server"},
    "clients/python/oplogc": {"oplogd", "oplog_sync"},
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("part", MUST_NOT_KNOW)
def test_a_part_imports_nothing_that_it_must_not_know(part: str) -> None:
    place = ROOT / part
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    wrong = {
        (str(file.relative_to(ROOT)), name)
        for file in files
        for name in imports(file)
        for module in MUST_NOT_KNOW[part]
        if name == module or name.startswith(f"{module}.")
    }
    assert wrong == set()
