import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import tests.kits.models.properties  # noqa: F401 - the defaults of all property tests
from tests.kits.paths import ROOT, TESTS
from tests.kits.run.durations import Durations
from tests.kits.run.needs import SOAK, UNIT, Guard, mark
from tests.kits.run.required import NO_INPUT, REQUIRE_ALL, RequireAll
from tests.kits.run.schedule import Schedule
from tests.kits.servers.mongo import (
    URL_VARIABLE,
    RunningMongo,
    drop_databases,
    ferretdb,
    java_server,
)
from tests.kits.servers.opensearch import OpenSearchServer
from tests.kits.servers.postgres import PostgresServer
from tests.kits.servers.room import Address, ServerRoom, UnavailableError, address_of

# No test pays for the reserve of its agents, except those of full disks.
os.environ.setdefault("OPLOGD_DISK_RESERVE", "0")

# Folder -> a package without which its modules cannot be imported.
DRIVERS = {
    "browser/": "playwright",
    "integration/mongo/": "pymongo",
    "integration/spark/": "pyspark",
}


_ROOM = pytest.StashKey[ServerRoom]()

# Each drops the databases that the tests have made on a shared server.
_drops: list[Callable[[], None]] = []


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
    server = PostgresServer(reached_at=_shared("postgres"))
    _drops.append(server.drop_databases)
    return server


@pytest.fixture(scope="session")
def own_postgres(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A PostgreSQL server for tests that kill it.

    Without PostgreSQL the shared server skips the test.
    """
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def opensearch() -> OpenSearchServer:
    """An OpenSearch server. All tests of a run share it, so each has its own indexes."""
    return OpenSearchServer.at(_shared("opensearch"))


@pytest.fixture(scope="module", autouse=True)
def _dropped_databases() -> Iterator[None]:
    """Drop the databases of the tests of a file: they are on servers that the run shares."""
    yield
    for drop in _drops:
        drop()


def _mongo(name: str) -> RunningMongo:
    if find_spec("pymongo"):
        from tests.kits.servers.pymongo_sockets import close_cancelled_connections

        close_cancelled_connections()
    real = os.environ.get(URL_VARIABLE)
    url = real or _shared(name)["url"]
    _drops.append(partial(drop_databases, url))
    return RunningMongo(url, is_stand_in=real is None)


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
    config.pluginmanager.register(Schedule())
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
        config.stash[_ROOM] = room
        config.add_cleanup(room.close)
    if os.environ.get(REQUIRE_ALL):
        config.pluginmanager.register(RequireAll())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tell which servers have ended: that explains failures of tests in which nothing is wrong."""
    for text in config.stash[_ROOM].ended:
        terminalreporter.section("a server of the run ended")
        terminalreporter.write_line(text)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what needs a driver that is not installed, and what was not asked for."""
    if not collection_path.is_dir() or not collection_path.is_relative_to(TESTS):
        return None
    folder = f"{collection_path.relative_to(TESTS).as_posix()}/"
    if folder == "soak/":
        return None if SOAK in os.environ else True
    if config.option.markexpr.startswith("unit") and folder != "./":
        # A folder of unit tests, or one above such a folder.
        wanted = any(folder.startswith(unit) or unit.startswith(folder) for unit in UNIT)
        return None if wanted else True
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace unpaired surrogates: output travels between processes as UTF-8."""
    report = yield
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report
