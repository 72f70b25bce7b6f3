"""Measure the step `fetch` of a pipe: its memory, and requests that hang or fail.

An agent on SQLite replicates objects with `--object-url`; a server in this process gives each of
them as JSON; `oplog-pipe run` fetches them and writes them to a file. Three runs:

- memory: objects of --bytes. The largest resident memory of the pipe.
- hanging: small objects; 1 % of the requests get no answer (`timeout: 1s`).
- broken: small objects, of which one always gets the answer 500, and a dead-letter file
  (`retry_for: 5s`). The pipe is started twice.

    python -m tests.bench.bench_fetch [--objects 1000] [--bytes 1000000] [--seconds 120]
                                      [--only memory hanging broken]
"""

import argparse
import json
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from oplog_pipe.errors import LogError
from tests.bench import kit
from tests.kits.agents.agent import Agent
from tests.kits.pipe.processes import PipeFolder

PARTS = ("memory", "hanging", "broken")
_BROKEN = "x5"
Answer = Callable[[str], tuple[int, bytes]]


@contextmanager
def objects(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """Serve objects. Return the address, and the ids that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path[1:])
            status, body = answer(self.path[1:])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Pass over connections that the pipe has closed."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()


def run(
    what: str, answer: Answer, count: int, seconds: float, starts: int = 1, **sink: Any
) -> list[kit.Figure]:
    """Run a pipe until the file has all objects but those that are dead, or for some seconds."""
    figures = []
    with (
        objects(answer) as (url, asked),
        tempfile.TemporaryDirectory() as name,
        Agent(Path(name), "--object-url", url + "/{{id}}") as agent,
    ):
        folder = Path(name) / "pipe"
        folder.mkdir()
        lines = (
            json.dumps({"event": "insert", "type": "video", "id": f"x{number}"})
            for number in range(count)
        )
        headers = {"Content-Type": "application/x-ndjson"}
        assert agent.post("\n".join(lines).encode(), headers) == 200
        fetch = sink.pop("fetch", {})
        pipe = PipeFolder(
            folder, [agent.url],
            [{"name": "out", "type": "file", "path": "out.jsonl", "transforms": [{"fetch": fetch}],
              **sink}],
        )  # fmt: skip
        out, dead = folder / "out.jsonl", folder / "dead.jsonl"
        for start in range(starts):
            began, peak, code = time.monotonic(), 0.0, None
            with pipe.run() as process:
                process.wait_log("sinks: out")
                while time.monotonic() < began + seconds:
                    code = process.process.poll()
                    if code is not None:
                        break
                    with suppress(ValueError):  # it has just ended
                        peak = max(peak, kit.peak_mib(process.pid))
                    if _is_acknowledged(pipe, count):
                        break
                    time.sleep(0.05)
                if code is None:
                    code = process.stop()
            print(
                f"{what}, start {start + 1}: {_ids(out)} of {count} objects written, {_ids(dead)}"
                f" dead letters, {len(asked)} requests, {time.monotonic() - began:.1f} s,"
                f" at most {peak:.0f} MiB, exit code {code}",
                flush=True,
            )
            title = what if starts == 1 else f"{what}, start {start + 1}"
            figures += [
                kit.Figure(f"{title}: objects written", "objects", [_ids(out)]),
                kit.Figure(f"{title}: dead letters", "objects", [_ids(dead)]),
                kit.Figure(f"{title}: requests so far", "requests", [len(asked)]),
                kit.Figure(f"{title}: largest memory", "MiB", [peak]),
            ]
    return figures


def _ids(path: Path) -> int:
    """Return the number of objects in a file of JSON lines."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return len({re.findall(rb'"offset":(\d+)', line[:200])[0] for line in file if line[20:]})


def _is_acknowledged(pipe: PipeFolder, count: int) -> bool:
    """Return whether everything is: also ``reset`` and ``live``."""
    with suppress(LogError):  # the folder is not there yet
        status = pipe.status()
        return bool(status["log"]["end"] >= count + 2 and status["sinks"][0]["lag"] == 0)
    return False


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--objects", type=int, default=1_000)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=120.0, help="at most, for each start")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args: argparse.Namespace = parser.parse_args()
    figures: list[kit.Figure] = []
    large = b'{"x":"' + b"x" * args.bytes + b'"}'
    if "memory" in args.only:
        figures += run(
            f"memory, {args.bytes:,} bytes each", lambda id: (200, large), args.objects,
            args.seconds,
        )  # fmt: skip
    if "hanging" in args.only:
        dice = random.Random(0)

        def hang(id: str) -> tuple[int, bytes]:
            if dice.random() < 0.01:
                time.sleep(5)
            return 200, b"{}"

        figures += run("hanging", hang, args.objects, args.seconds, fetch={"timeout": "1s"})
    if "broken" in args.only:

        def fail(id: str) -> tuple[int, bytes]:
            return (500, b"{}") if id == _BROKEN else (200, b"{}")

        policy = {"retry_for": "5s", "dead_letter": "dead.jsonl"}
        figures += run("broken", fail, args.objects, args.seconds, 2, **policy)
    kit.finish(f"The step fetch, {args.objects:,} objects", figures, args)


if __name__ == "__main__":
    main()
