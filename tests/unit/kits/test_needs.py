"""A test that uses more than its marks tell fails."""

import os
import re
import subprocess
import sys
import textwrap

import pytest

from tests.kits.paths import ROOT
from tests.kits.run.needs import FIXTURES, FOLDERS, PARAMETERS, PROGRAMS, needed_by, needs

TRIED = """
    import shutil, socket, subprocess, threading, pytest

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

    ENDED = threading.Event()

    def connect_later():
        ENDED.wait()
        socket.create_server(("127.0.0.1", 0)).close()

    THREAD = threading.Thread(target=connect_later)

    def test_before(): THREAD.start()

    @pytest.mark.PARAMETER
    def test_thread_of_an_earlier_test():
        ENDED.set()
        THREAD.join()

    @pytest.mark.PARAMETER
    def test_network(): socket.create_server(("127.0.0.1", 0)).close()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return by mark what pytest tells of the tests above with this mark, a paragraph for each."""
    folder = tmp_path_factory.mktemp("tried")
    for mark in ("node", "go", "unit"):
        (folder / f"test_{mark}.py").write_text(textwrap.dedent(TRIED.replace("PARAMETER", mark)))
    (folder / "conftest.py").write_text(
        "from tests.kits.run.needs import Guard\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(Guard())\n"
        "    for name in ('go', 'node', 'unit'):\n"
        "        config.addinivalue_line('markers', name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-vv", "-rA", "--strict-markers", "-c", "/dev/null", "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    summary = done.stdout.rpartition("short test summary")[2].splitlines()
    return {
        mark: [line for line in summary if f"test_{mark}.py::" in line]
        for mark in ("node", "go", "unit")
    }


@pytest.mark.node
@pytest.mark.process
@pytest.mark.parametrize(
    ("mark", "passed"),
    [("node", 6), ("go", 4), ("unit", 2)],
)
def test_a_test_without_the_mark_for_its_program_or_connection_fails(
    mark: str, passed: int, told: dict[str, list[str]]
) -> None:
    lines = told[mark]
    assert sum(line.startswith("PASSED") for line in lines) == passed, lines
    text = "\n".join(lines)
    if mark == "node":
        assert len(lines) == 6
    elif mark == "go":
        assert text.count("this test needs the mark node") == 2
    else:
        assert "a unit test used socket.bind" in text
        assert "a unit test used subprocess.Popen" in text


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
