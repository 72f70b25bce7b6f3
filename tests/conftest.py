import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.mongo.servers import URL_VARIABLE, Running, Server, ferretdb, java_server

ROOT = Path(__file__).resolve().parent.parent
REQUIRE_ALL = "OPLOG_TEST_REQUIRE_ALL"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real input: `data` in `../shared`, or in what OPLOG_SHARED names."""
    data = Path(os.environ.get("OPLOG_SHARED") or ROOT.parent / "shared") / "data"
    if not data.is_dir():
        pytest.skip(
            f"no real input: {data} does not exist (OPLOG_SHARED names the folder above it)"
        )
    return data


@pytest.fixture(scope="session")
def ferret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A MongoDB with capped collections, for small data."""
    yield from _running(ferretdb, tmp_path_factory, "ferretdb")


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A fast MongoDB."""
    yield from _running(java_server, tmp_path_factory, "java-server")


def _running(
    make: Callable[[Path], Server], folders: pytest.TempPathFactory, name: str
) -> Iterator[Running]:
    if real := os.environ.get(URL_VARIABLE):
        yield Running(real, None)
        return
    with make(folders.mktemp(name)) as server:
        yield Running(server.url, server)


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in its background with SIGINT ignored, and all that the tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get(REQUIRE_ALL):
        config.pluginmanager.register(RequireAll())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For several processes (``-n``): longest first."""
    items.sort(key=lambda item: (_weight(_group(item.nodeid)), _group(item.nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A file stays together, and those share a Spark session that take long."""
    from xdist.scheduler import LoadScopeScheduling

    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = _group
    return scheduling


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed travels between processes as UTF-8, which has no unpaired surrogates."""
    report = yield
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report


_SLOW_SPARK = ("test_guard.py", "test_stream.py", "test_submit.py")
_OWN_SPARK = ("test_command.py", "test_failures.py", "test_zones.py")
_LONGEST = ("spark", "mongo", "contract", "e2e")


def _group(nodeid: str) -> str:
    """Tests with the same name here run in one process."""
    folder, _, name = nodeid.partition("::")[0].removeprefix("tests/").partition("/")
    if folder != "sync":
        return f"{folder}/{name}"
    if name in _OWN_SPARK:
        return "spark/own"
    return "spark/slow" if name in _SLOW_SPARK else "spark/all"


def _weight(group: str) -> int:
    folder = group.partition("/")[0]
    return _LONGEST.index(folder) if folder in _LONGEST else len(_LONGEST)


class RequireAll:
    """A test that was skipped fails the run. Sees the reports of all processes."""

    def __init__(self) -> None:
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        # An expected failure is reported as skipped too; it did run.
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            )
            self._skipped[report.nodeid] = reason

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._skipped:
            terminalreporter.section(f"skipped, but {REQUIRE_ALL} is set", red=True, bold=True)
            for nodeid, reason in self._skipped.items():
                terminalreporter.line(f"{nodeid}: {reason}")
