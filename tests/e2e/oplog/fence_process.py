"""A process that appends with fences: ``python -m tests.e2e.oplog.fence_process PATH LOG``.

It takes a new term of the lease, appends to the topic of this log and to the oplog with it, and so
on. All such processes share one holder, so each new term ends that of another process. It writes a
line after some appends were refused, and goes on until its input ends. Then it writes as JSON how
many appends of each term were accepted: ``{"topic": {term: count}, "oplog": {term: count}}``.
"""

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oplogd.model.lease import Fence
from oplogd.model.message import of_payload
from oplogd.store import FencedBatch
from oplogd.store.leases import LeaseRequest
from oplogd.store.sqlite import SqliteStore
from oplogd.store.topics import MessageBatch, Placed
from tests.kits.models.operations import operation
from tests.kits.paths import ROOT
from tests.kits.processes.forked import start
from tests.kits.servers.stores import skip_fsync

LEASE = "orders"
REFUSED = 200


async def main(path: Path, log: int) -> None:
    is_over = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    accepted: dict[str, Counter[int]] = {"topic": Counter(), "oplog": Counter()}
    refused = 0
    store = SqliteStore(path)
    await store.open()
    while not is_over.is_set():
        lease = await store.leases.poll(LeaseRequest(LEASE, "all", 60_000, refresh=True))
        fence = Fence(LEASE, lease.term)
        message = of_payload(str(lease.term).encode())
        for _ in range(2):
            (outcome,) = await store.topics.append([MessageBatch(log, [message], fence)])
            accepted["topic"][lease.term] += isinstance(outcome, Placed)
            made = operation(id_=str(lease.term))
            (is_appended,) = await store.append_fenced([FencedBatch([made], fence)])
            accepted["oplog"][lease.term] += is_appended
            refused += not is_appended
        if refused >= REFUSED:
            print("refused", flush=True)
            refused = -sys.maxsize
    await store.close()
    print(json.dumps(accepted), flush=True)


class FencedAppender:
    """Such a process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def wait_until_refused(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "refused\n"

    def end(self) -> dict[str, Counter[int]]:
        """Return how many appends of each term were accepted, by log."""
        output, _ = self._process.communicate()
        return {
            log: Counter({int(term): count for term, count in counts.items()})
            for log, counts in json.loads(output).items()
        }


@contextmanager
def fenced_appender(path: Path, log: int) -> Iterator[FencedAppender]:
    command = [sys.executable, "-m", "tests.e2e.oplog.fence_process", str(path), str(log)]
    with start(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as process:
        try:
            yield FencedAppender(process)
        finally:
            if process.poll() is None:
                process.kill()
    assert process.returncode == 0


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        skip_fsync(patch)
        asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
