"""The spool loses and doubles no operation, whatever happens to its file; its failures end."""

import asyncio
import resource
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from oplogd.ingest.spool import Spool
from oplogd.store import BatchId
from oplogd.watch.health import Health
from tests.integration.mongo.interruptions import InterruptedServer
from tests.kits.agents.agent import DEADLINE, Agent, TellingAgent
from tests.kits.models.operations import operation as made
from tests.kits.mongo.agents import adds_up, agent, wait_for
from tests.kits.processes import forked

# An agent soon notices that its server is unreachable.
AWAY = {"serverSelectionTimeoutMS": "500", "connectTimeoutMS": "500"}
NOWHERE = f"mongodb://127.0.0.1:1/nowhere?{urlencode(AWAY)}"


@pytest.fixture
def server(plain_url: str) -> Iterator[InterruptedServer]:
    """A server to stop and to kill."""
    with InterruptedServer(plain_url) as made:
        yield made


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """The path of the spool's file, in a folder of its own."""
    path = tmp_path / "spool" / "spool.db"
    path.parent.mkdir()
    return path


def start(folder: Path, url: str, spool: Path, *flags: str, **options: Any) -> Agent:
    return agent(folder, url, "plain", "--spool", str(spool), *flags, **options)


def operation(number: int, size: int = 0) -> dict[str, Any]:
    return {
        "event": "insert",
        "type": "t",
        "id": str(number),
        "parents": ["p" * size] if size else [],
    }


def wait_spooled(only: Agent, count: int) -> None:
    wait_for(f"{count} are spooled", lambda: only.status()["spool"]["operations"] == count)


def change(path: Path, script: str) -> None:
    """Change the file as another process could."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=DEADLINE)) as db:
        db.executescript(script)


def stored(only: Agent, count: int) -> None:
    """Demand that the log holds the operations 0 to ``count`` - 1 in this order, and each once."""

    def is_stored() -> bool:
        status = only.status()
        return bool(status["status"] == "OK" and status["store"]["ops"] == count)

    wait_for("all is stored", is_stored)
    with only.follow("1" * 24) as stream:
        stream.until("reset")
        assert [
            int(key.partition("/")[2]) for key in (event.key for event in stream.take(count))
        ] == list(range(count))


def reason(only: Agent) -> str:
    return str(only.status().get("reason", ""))


def test_a_folder_that_is_gone_keeps_operations_in_memory_until_it_is_back(
    server: InterruptedServer, spool: Path, tmp_path: Path
) -> None:
    url = server.url(**AWAY)
    with start(tmp_path, url, spool) as only:
        server.kill()
        spool.parent.rename(tmp_path / "away")
        only.send_udp(*(operation(number) for number in range(10)))
        wait_for("the spool's failure is told", lambda: "--spool" in reason(only))
        only.wait_status(queue_size=10, events_ingested=0, status="DEGRADED")
        assert only.post(operation(99)) == 503
        spool.parent.mkdir()
        wait_spooled(only, 10)
        only.wait_status(queue_size=0, events_ingested=0, events_spooled=10)
        assert "--spool" not in reason(only)
        server.start()
        stored(only, 10)


def test_a_spool_that_cannot_be_read_holds_back_what_comes_later_and_goes_on_by_itself(
    server: InterruptedServer, spool: Path, tmp_path: Path
) -> None:
    url = server.url(**AWAY)
    with start(tmp_path, url, spool) as only:
        server.kill()
        only.send_udp(*(operation(number) for number in range(10)))
        wait_spooled(only, 10)
        change(spool, "ALTER TABLE spool RENAME COLUMN data TO other")
        server.start()
        only.send_udp(*(operation(number) for number in range(10, 20)))
        wait_for("the failure is told", lambda: "--spool" in reason(only))
        only.wait_status(queue_size=10, status="DEGRADED")
        assert only.post(operation(99)) == 503
        change(spool, "ALTER TABLE spool RENAME COLUMN other TO data")
        stored(only, 20)
        only.wait_status(queue_size=0, events_ingested=20)


def test_operations_that_cannot_be_deleted_from_the_spool_are_stored_once(
    server: InterruptedServer, spool: Path, tmp_path: Path
) -> None:
    url = server.url(**AWAY)
    with start(tmp_path, url, spool) as only:
        server.kill()
        only.send_udp(*(operation(number) for number in range(10)))
        wait_spooled(only, 10)
        change(
            spool,
            "CREATE TRIGGER no BEFORE DELETE ON spool BEGIN SELECT RAISE(FAIL, 'not now'); END",
        )
        server.start()
        wait_for("all is stored", lambda: only.status()["spool"]["operations"] == 0)
        wait_for("the failure is told", lambda: "not now" in reason(only))
        assert only.status()["store"]["ops"] == 10
        only.kill()
    with start(tmp_path, url, spool) as only:
        change(spool, "DROP TRIGGER no")
        wait_for("all is deleted", lambda: only.status()["spool"]["operations"] == 0)
        stored(only, 10)
    with closing(sqlite3.connect(spool)) as db:
        assert db.execute("SELECT count(*) FROM spool").fetchone() == (0,)


def test_a_full_disk_keeps_operations_in_memory_until_there_is_room(
    server: InterruptedServer, spool: Path, tmp_path: Path
) -> None:
    url = server.url(**AWAY)
    with start(tmp_path, url, spool) as only:
        server.kill()
        only.send_udp(operation(0))
        wait_spooled(only, 1)
        written = max(path.stat().st_size for path in spool.parent.iterdir())
        _, hard = resource.prlimit(only.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(only.process.pid, resource.RLIMIT_FSIZE, (written, hard))
        only.send_udp(*(operation(number, 50_000) for number in range(1, 11)))
        wait_for("the failure is told", lambda: "--spool" in reason(only))
        only.wait_status(queue_size=10, events_ingested=0, events_spooled=1)
        resource.prlimit(only.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_spooled(only, 11)
        assert "--spool" not in reason(only)
        server.start()
        stored(only, 11)


def test_a_batch_that_is_larger_than_the_spool_does_not_stop_the_writer(
    server: InterruptedServer, spool: Path, tmp_path: Path
) -> None:
    url = server.url(**AWAY)
    with start(tmp_path, url, spool, "--spool-size", "1MB") as only:
        server.kill()
        only.send_udp(operation(0))
        wait_spooled(only, 1)
        for number in range(1, 61):
            only.send_udp(operation(number, 50_000))
        only.wait_status(events_received=61)
        wait_for("the spool is full", lambda: only.status()["spool"]["bytes"] > 900_000)
        status = only.status()
        assert status["spool"]["bytes"] <= 1 << 20
        assert status["spool"]["operations"] + status["queue_size"] == 61
        server.start()
        stored(only, 61)
        only.wait_status(queue_size=0, events_ingested=61)
        assert adds_up(only)


def test_a_damaged_spool_is_named_with_its_flag_and_left_as_it_is(
    spool: Path, tmp_path: Path
) -> None:
    spool.write_bytes(b"SQLite format 3\0" + b"\xff" * 8192)
    before = spool.read_bytes()
    command = [
        sys.executable,
        "-m",
        "oplogd",
        "--listen",
        "127.0.0.1:0",
        "--mongo-url",
        NOWHERE,
        "--spool",
        str(spool),
    ]
    ended = forked.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 1
    sentence = ended.stderr.splitlines()[-1]
    assert all(words in sentence for words in (str(spool), "--spool", "damaged", ".recover"))
    assert "Traceback" not in ended.stderr
    assert spool.read_bytes() == before


LARGE = 1_500
"""Operations of 60 KB in the spool."""


async def fill(path: Path, operations: int, size: int) -> int:
    """Put operations into a new spool. Return their bytes."""
    filled = Spool(path, 1 << 40, Health())
    await filled.open()
    await filled.put(
        [made(id_=str(number), parents=("p" * size,)) for number in range(operations)],
        BatchId("w", 0),
    )
    octets = filled.bytes
    await filled.close()
    return octets


def peak(path: Path) -> int:
    """Return the peak memory in bytes of an agent that has tried to send this spool."""
    with start(path.parent, NOWHERE, path) as only:
        only.wait_log("writer: ")
        lines = Path(f"/proc/{only.process.pid}/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024


async def test_a_spool_of_large_operations_takes_little_memory(spool: Path) -> None:
    small = spool.with_name("small.db")
    await fill(small, 1, 1)
    octets = await fill(spool, LARGE, 60_000)
    peaks = await asyncio.gather(*(asyncio.to_thread(peak, path) for path in (small, spool)))
    assert peaks[1] - peaks[0] < octets / 2


@pytest.mark.parametrize(
    "flags", [(), ("--spool", "spool.db")], ids=["without a spool", "with a spool"]
)
def test_a_server_that_hangs_does_not_hold_up_the_exit(
    server: InterruptedServer, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    url = server.url()
    flags = tuple(str(tmp_path / flag) if flag.endswith(".db") else flag for flag in flags)
    flags = (*flags, "--shutdown-timeout", "1s")
    with agent(tmp_path, url, "plain", *flags, make=TellingAgent) as only:
        assert only.post(operation(0)) == 204
        server.freeze()
        only.send_udp(operation(1))
        only.wait_status(queue_size=1)
        assert only.stop() == 3
        assert "1 operations are not confirmed as stored" in "".join(only.log)
        server.thaw()
