"""OpenSearch for tests: a Java program that is built once, from Maven's central repository.

Run as a program, this builds it into `.cache`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.kits.servers.mongo import build, first_line, run
from tests.kits.servers.ports import free_port
from tests.kits.servers.room import Address, UnavailableError

HERE = Path(__file__).resolve().parent
DEADLINE = 60.0


class OpenSearchServer:
    """A server with its data in ``folder``. It starts again at the same address."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.url = url or f"http://127.0.0.1:{free_port()}"

    def reached_at(self) -> Address:
        return {"folder": str(self._folder), "url": self.url}

    def end_signal(self) -> tuple[int, int]:
        assert self._process is not None
        return signal.SIGKILL, self._process.pid

    @classmethod
    def at(cls, address: Address) -> Self:
        """Return a server that another process has started."""
        return cls(Path(address["folder"]), address["url"])

    def start(self) -> None:
        """Start the server in about two seconds, and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        port = self.url.rpartition(":")[2]
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        classes = build_opensearch()
        path = f"{classes}:{classes}/lib/*"
        with (self._folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                ["java", *options, "-cp", path, "Server", port, str(self._folder)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        said = first_line(self._process).strip()
        if not said.startswith("http://"):
            self.kill()
            log_text = (self._folder / "server.log").read_text()
            raise AssertionError(f"OpenSearch did not start:\n{log_text[-4000:]}")
        self.url = said

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(DEADLINE)
            assert process.stdout is not None
            process.stdout.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request, and return the JSON of its answer. Raises HTTPError for a refusal."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            return json.load(response)

    def documents(self, index: str) -> dict[str, Any]:
        """Return all documents of an index by their ids: at most 10,000."""
        self.ask("POST", f"/{index}/_refresh")
        found = self.ask("POST", f"/{index}/_search", {"size": 10_000})
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def build_opensearch() -> Path:
    """Build the classes. Return their folder, with `lib` in it. Raises UnavailableError."""
    return build("opensearch", HERE / "opensearchserver", _java_build)


def _java_build(source: Path, target: Path) -> None:
    missing = [tool for tool in ("java", "javac", "mvn") if not shutil.which(tool)]
    if missing:
        raise UnavailableError(
            f"OpenSearch for tests needs {', '.join(missing)}: apt install"
            " default-jdk-headless maven"
        )
    lib = target / "lib"
    copy = ["mvn", "-q", "-B", "-ntp", "dependency:copy-dependencies", f"-DoutputDirectory={lib}"]
    try:
        run(copy, source, os.environ)
    except AssertionError as error:
        raise UnavailableError(f"OpenSearch cannot be downloaded:\n{error}") from None
    run(["javac", "-cp", f"{lib}/*", "-d", str(target), "Server.java"], source, os.environ)


def main() -> int:
    try:
        build_opensearch()
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
