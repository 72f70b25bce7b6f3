import gc
import os
import signal
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import tests.kits.models.properties  # noqa: F401 - the defaults of all property tests
from tests.kits.durations import Durations
from tests.kits.servers.postgres import PostgresServer
from tests.kits.servers.room import Address, ServerRoom, UnavailableError, address_of
from tests.mongo.servers import (
    URL_VARIABLE,
    RunningMongo,
    ferretdb,
    java_server,
)
from tests.needs import UNIT, Guard, is_unit_file, mark
from tests.opensearch.servers import OpenSearchServer

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
# Folder -> a package without which its modules cannot be imported.
DRIVERS = {"browser": "playwright", "mongo": "pymongo", "sync": "pyspark"}
REQUIRE_ALL = "OPLOG_TEST_REQUIRE_ALL"
# Real input is no part of the project: without OPLOG_SHARED its tests may be skipped.
NO_INPUT = "no real input"
# Minutes for each long run; without it tests/soak/ is left out.
SOAK = "OPLOG_SOAK_MINUTES"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real input: `data` in `../shared` or in the folder of OPLOG_SHARED."""
    data = Path(os.environ.get("OPLOG_SHARED") or ROOT.parent / "shared") / "data"
    if not data.is_dir():
        pytest.skip(f"{NO_INPUT}: {data} does not exist (OPLOG_SHARED names the folder above it)")
    return data


@pytest.fixture(scope="session")
def ferret() -> RunningMongo:
    """A MongoDB stand-in with capped collections, for small data. All tests of a run share it."""
    return _mongo("ferretdb")


@pytest.fixture(scope="session")
def java() -> RunningMongo:
    """A fast MongoDB stand-in. All tests of a run share it."""
    return _mongo("java-server")


@pytest.fixture(scope="session")
def postgres() -> PostgresServer:
    """A PostgreSQL server. All tests of a run share it, so each creates its own database."""
    return PostgresServer(reached_at=_shared("postgres"))


@pytest.fixture(scope="session")
def own_postgres(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A PostgreSQL server for tests that kill it or change its users."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def opensearch() -> OpenSearchServer:
    """An OpenSearch server. All tests of a run share it, so each has its own indexes."""
    return OpenSearchServer.at(_shared("opensearch"))


def _mongo(name: str) -> RunningMongo:
    if find_spec("pymongo"):
        from tests.kits.servers.pymongo_sockets import close_cancelled_connections

        close_cancelled_connections()
    if real := os.environ.get(URL_VARIABLE):
        return RunningMongo(real, is_stand_in=False)
    return RunningMongo(_shared(name)["url"], is_stand_in=True)


def _shared(name: str) -> Address:
    try:
        return address_of(name)
    except UnavailableError as missing:
        pytest.skip(str(missing))


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background processes with SIGINT ignored; processes of the tests inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Guard())
    if not hasattr(config, "workerinput"):  # only the process that sees the reports of all
        config.pluginmanager.register(Durations())
        room = ServerRoom(
            {
                "ferretdb": ferretdb,
                "java-server": java_server,
                "postgres": lambda _: PostgresServer(),
                "opensearch": OpenSearchServer,
            }
        )
        config.add_cleanup(room.close)
    if os.environ.get(REQUIRE_ALL):
        config.pluginmanager.register(RequireAll())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what needs a driver that is not installed, and what was not asked for."""
    is_unit = config.option.markexpr == "unit"
    if is_unit and collection_path.suffix == ".py" and collection_path.is_relative_to(TESTS):
        return None if is_unit_file(collection_path.relative_to(TESTS).as_posix()) else True
    if collection_path.parent != TESTS or not collection_path.is_dir():
        return None
    folder = collection_path.name
    if folder == "soak":
        return None if SOAK in os.environ else True
    if is_unit:
        return None if any(pattern.startswith(f"{folder}/") for pattern in UNIT) else True
    driver = DRIVERS.get(folder)
    if driver is None or find_spec(driver) or os.environ.get(REQUIRE_ALL):
        return None
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector leave out the objects of the collection: they stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    mark(item, TESTS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests for several processes: longest first."""
    items.sort(key=lambda item: _order(_group(item.nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run the tests of a group in one process.

    The marks that xdist has for this have no effect with pytest 9.2, whose tests have other ids.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace unpaired surrogates: output travels between processes as UTF-8."""
    report = yield
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report


# Files whose tests start Spark in processes of their own. All others share one session.
_OWN_SPARK = ("test_command.py", "test_failures.py", "test_submit.py")
_LONGEST = ("spark", "mongo", "relay", "contract", "e2e")


def _group(nodeid: str) -> str:
    """Return the name of the group of tests that run in one process: a file, or a Spark session."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    folder, _, name = path.partition("/")
    if folder != "sync":
        return path
    return "spark/own" if name in _OWN_SPARK else "spark/all"


def _order(group: str) -> tuple[int, str]:
    folder = group.partition("/")[0]
    return _LONGEST.index(folder) if folder in _LONGEST else len(_LONGEST), group


class RequireAll:
    """Fails the run if a test was skipped. Sees the reports of all processes."""

    def __init__(self) -> None:
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        # An expected failure is reported as skipped too, although it ran.
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            )
            if NO_INPUT not in reason or "OPLOG_SHARED" in os.environ:
                self._skipped[report.nodeid] = reason

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._skipped:
            terminalreporter.section(f"skipped, but {REQUIRE_ALL} is set", red=True, bold=True)
            for nodeid, reason in self._skipped.items():
                terminalreporter.line(f"{nodeid}: {reason}")
