"""A test that uses more than its marks tell fails."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.kits.paths import ROOT
from tests.kits.run.needs import FIXTURES, FOLDERS, PARAMETERS, PROGRAMS, needed_by, needs

TRIED = """
    import shutil, socket, subprocess, pytest

    def start(program):
        subprocess.run([shutil.which(program), "--version"], check=True)

    @pytest.mark.PARAMETER
    def test_program(): start("node")

    @pytest.fixture
    def fixture(): start("node")

    @pytest.mark.PARAMETER
    def test_fixture(fixture): pass

    @pytest.mark.PARAMETER
    def test_process(): start("true")

    @pytest.mark.PARAMETER
    def test_network(): socket.create_server(("127.0.0.1", 0)).close()
"""


@pytest.mark.node
@pytest.mark.process
@pytest.mark.parametrize(
    ("mark", "passed"),
    [("node", 4), ("go", 2), ("unit", 0)],
)
def test_a_test_without_the_mark_for_its_program_or_connection_fails(
    mark: str, passed: int, tmp_path: Path
) -> None:
    (tmp_path / "test_tried.py").write_text(
        textwrap.dedent(TRIED.replace("PARAMETER", mark)), encoding="utf-8"
    )
    (tmp_path / "conftest.py").write_text(
        "from tests.kits.run.needs import Guard\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(Guard())\n"
        "    for name in ('go', 'node', 'unit'):\n"
        "        config.addinivalue_line('markers', name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-c", "/dev/null", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = done.stdout
    assert (f"{passed} passed" in told) == (passed > 0), told
    if mark == "node":
        assert done.returncode == 0
    elif mark == "go":
        assert told.count("this test needs the mark node") == 4  # each once, and in the summary
    else:
        assert "a unit test used socket.bind" in told
        assert "a unit test used subprocess.Popen" in told


def test_marks_follow_from_folders_fixtures_and_parameters() -> None:
    assert needs("integration/mongo/test_url.py", [], {}) == {"mongo"}
    assert needs("docs/test_docs.py", ["tmp_path", "browser"], {}) == {"browser"}
    assert needs("contract/wire/test_ingest.py", [], {"place": "plain"}) == {"mongo"}
    assert needs("contract/wire/test_ingest.py", [], {"place": "sqlite"}) == set()
    assert needs("unit/web/test_origin.py", [], {"name": "plain"}) == set()


@pytest.mark.parametrize(
    ("executable", "arguments", "mark"),
    [
        (None, ["/usr/bin/node", "--version"], "node"),
        ("/usr/bin/php", ["php"], "php"),
        (None, "nginx", "nginx"),
        (None, [b"/x/playwright/driver/node"], "browser"),
        (None, ["/usr/bin/python3"], None),
    ],
)
def test_the_program_tells_the_mark(
    executable: str | None, arguments: object, mark: str | None
) -> None:
    assert needed_by(executable, arguments) == mark


def test_every_mark_is_registered(pytestconfig: pytest.Config) -> None:
    registered = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    given = {*FOLDERS.values(), *FIXTURES.values(), *PARAMETERS.values(), *PROGRAMS.values()}
    assert given | {"unit", "process", "network"} <= registered


@pytest.mark.process
def test_the_tests_of_a_file_run_in_one_process() -> None:
    files = [
        "tests/unit/agent/test_rates.py",
        "tests/unit/agent/test_nesting.py",
        "tests/unit/settings/test_values.py",
    ]
    options = "-vv -m unit -n 2 --dist loadscope -p no:cacheprovider"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    ran = set(re.findall(r"^\[(gw\d)\] .* (tests/\S+?\.py)::", done.stdout, re.MULTILINE))
    assert sorted(file for _, file in ran) == sorted(files), done.stdout
