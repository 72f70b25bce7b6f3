"""Tests lie where tests/README.md says and share code through kits. Files and folders are small."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.paths import ROOT, TESTS


def folders(above: Path) -> set[str]:
    """Return the names of the folders with modules. A checkout may keep empty ones of old files."""
    return {each.name for each in above.iterdir() if each.is_dir() and any(each.rglob("*.py"))}


KITS = "kits"
SUITES = folders(TESTS)
LONGEST = 400
PRODUCT = tuple(
    ROOT / package
    for package in (
        "oplogd", "oplog_kit", "oplog_pipe", "oplog_relay", "oplog_sync", "pyspark_oplog",
        "clients/python/oplogc",
    )
)  # fmt: skip
LONGEST_OF_PRODUCT = 300
MOST_MODULES = 16
# Long runs measure with the parts of the benchmarks.
ALLOWED = {("soak", "bench")}


_RELATIVE = re.compile(r"^ *from \.", re.MULTILINE)
_IMPORT = re.compile(
    r"^ *(?:from tests\.([\w.]+) import |from tests import (\w+)|import tests\.([\w.]+))",
    re.MULTILINE,
)


def modules() -> Iterator[Path]:
    return TESTS.rglob("*.py")


def imported(path: Path) -> Iterator[str]:
    """Yield the folders of tests/ from which a module imports."""
    for found in _IMPORT.finditer(path.read_text(encoding="utf-8")):
        folder = found[1] or found[2] or found[3]
        yield folder.partition(".")[0]


def foreign(path: Path) -> set[str]:
    """Return the suites from which a module of another suite, or a kit, imports."""
    own = path.relative_to(TESTS).parts[0]
    others = {each for each in imported(path) if each in SUITES - {own, KITS}}
    return {each for each in others if (own, each) not in ALLOWED}


def test_no_suite_and_no_kit_imports_from_a_suite() -> None:
    found = {path: suites for path in modules() if (suites := foreign(path))}
    assert found == {}, "move what two suites need to tests/kits"


def test_imports_name_the_whole_path() -> None:
    found = [path for path in modules() if _RELATIVE.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_no_file_has_more_than_400_lines() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}


def product() -> list[Path]:
    return [path for package in PRODUCT for path in package.rglob("*.py")]


def test_no_file_of_the_product_has_more_than_300_lines() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in product()}
    assert {path: count for path, count in lines.items() if count > LONGEST_OF_PRODUCT} == {}


def test_no_folder_of_the_product_has_more_than_16_modules() -> None:
    modules_of = Counter(path.parent for path in product())
    assert {folder: n for folder, n in modules_of.items() if n > MOST_MODULES} == {}


def test_the_page_names_every_suite_and_every_kit() -> None:
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    kits = folders(TESTS / KITS)
    missing = {f"`{each}/`" for each in SUITES | kits} - set(re.findall(r"`[a-z0-9]+/`", text))
    assert missing == set()


@pytest.mark.parametrize(
    ("line", "suites"),
    [
        ("from tests.e2e.relay.chain import Chain", {"e2e"}),
        ("from tests.unit import relay", {"unit"}),
        ("import tests.e2e.held_agent", {"e2e"}),
        ("from tests.kits.sse import reader", {"kits"}),
        ("from tests import conftest", {"conftest"}),
        ("import os", set()),
    ],
)
def test_an_import_tells_its_suite(line: str, suites: set[str], tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(line, encoding="utf-8")
    assert set(imported(tmp_path / "module.py")) == suites
