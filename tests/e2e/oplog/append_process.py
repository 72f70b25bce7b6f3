"""A process that appends to a store: ``python -m tests.e2e.oplog.append_process PATH [CLOCK_MS]``.

Each line of its input is a JSON array of operations. They are appended together. The answer is a
line with the time in ms at which they were durable. ``CLOCK_MS``: the time by the process's clock,
which has stood for long enough to be followed.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from oplogd.clock import SYSTEM, now_ms
from oplogd.decode.media_types import JSON
from oplogd.decode.pieces import at_once
from oplogd.ingest.operations import decoding
from oplogd.model.operation import Operation, format_ms
from oplogd.store.sqlite import SqliteStore
from tests.kits.clock.virtual import VirtualClock
from tests.kits.paths import ROOT
from tests.kits.processes.forked import start

_STOOD_SECONDS = 61


def decode_operations(array: bytes) -> list[Operation]:
    return at_once(decoding(array, JSON, format_ms(now_ms()), len(array))).operations


async def main(path: Path, clock_ms: int | None) -> None:
    clock = None if clock_ms is None else VirtualClock(clock_ms - _STOOD_SECONDS * 1000)
    store = SqliteStore(path, clock=SYSTEM if clock is None else clock.dates)
    await store.open()
    if clock is not None:
        store.clock.now_ms()
        clock.move(_STOOD_SECONDS)
    for line in sys.stdin.buffer:
        await store.append(decode_operations(line))
        print(now_ms(), flush=True)
    await store.close()


class Appender:
    """Appends through such a process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def append(self, operations: list[dict[str, Any]]) -> int:
        """Return the time in ms at which the operations were durable."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(operations) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def appender(path: Path, clock_ms: int | None = None) -> Iterator[Appender]:
    command = [
        sys.executable,
        "-m",
        "tests.e2e.oplog.append_process",
        str(path),
        *([str(clock_ms)] if clock_ms else []),
    ]
    with start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            yield Appender(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
    assert process.returncode == 0


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
