"""Faults of the store file: locks, a full disk, missing permissions, damage."""

import itertools
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kits.agents.agent import DEADLINE, Agent, Answer, Event
from tests.kits.agents.streams import ByteStream, offsets, operation
from tests.kits.processes import forked


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Let another process hold the write lock."""
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('BEGIN IMMEDIATE'); print(flush=True); sys.stdin.read(); db.close()"
    )
    with forked.start(
        [sys.executable, "-c", code, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        try:
            yield
        finally:
            process.stdin.close()
    assert process.returncode == 0


def assert_refused(answer: Answer, *words: str) -> None:
    """Assert a 503 with a sentence and Retry-After, and without internals."""
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == 503
    assert all(word in answer.json["detail"] for word in words), answer.json
    assert b"Traceback" not in answer.body
    assert b"sqlite3" not in answer.body


def assert_degraded(agent: Agent, *words: str) -> dict[str, Any]:
    """Assert that /status, /live and /ready tell so. Return the status."""
    answer = agent.request("GET", "/status")
    status: dict[str, Any] = answer.json
    assert (answer.status, status["status"]) == (503, "DEGRADED")
    assert all(word in status["reason"] for word in words), status
    assert agent.request("GET", "/live").status == 200
    assert_refused(agent.request("GET", "/ready"), *words)
    return status


def wait_reason(agent: Agent, words: str) -> None:
    """Wait until the agent gives this reason for being degraded."""
    deadline = time.monotonic() + DEADLINE
    while words not in (reason := agent.status().get("reason", "")):
        assert time.monotonic() < deadline, reason
        time.sleep(0.01)


def assert_recovers(agent: Agent, **wanted: Any) -> None:
    agent.wait_status(status="OK", queue_size=0, **wanted)
    assert agent.request("GET", "/status").status == 200
    assert agent.request("GET", "/ready").status == 200


def test_while_the_store_is_locked_udp_waits_in_order_http_is_refused_and_consumers_stay(
    tmp_path: Path,
) -> None:
    room = 60
    words = ("oplog.db", "another process", "lock")
    flags = ("--max-queued-events", str(room), "--heartbeat", "200ms")
    with Agent(tmp_path, *flags) as agent, agent.follow() as consumer:
        assert agent.post(operation("insert", "before")) == 204
        beside: list[Event] = []
        with locked(tmp_path / "oplog.db"):
            agent.send_udp(operation("insert", "u0"))
            agent.wait_status(events_received=2)
            assert_refused(
                agent.request("POST", "/", operation("insert", "waits")), "dropped", *words
            )
            assert_degraded(agent, *words)
            assert_refused(agent.request("POST", "/", [operation("insert", "at once")] * 7), *words)
            agent.send_udp(*(operation("insert", f"u{number}") for number in range(1, room + 20)))
            agent.wait_status(events_received=1 + 1 + 1 + 7 + room + 19)
            status = assert_degraded(agent, *words)
            assert (status["queue_size"], status["events_ingested"], status["clients"]) == (
                room,
                1,
                1,
            )
            assert status["events_discarded"] == 1 + 7 + 20
            for _ in range(6):
                beside += consumer.next_heartbeat()
            with ByteStream(agent, "0") as late:  # reading goes on
                assert [event.event for event in late.until_live()] == ["reset", "insert", "live"]
        assert_recovers(agent, events_ingested=1 + room, events_discarded=1 + 7 + 20)
        assert agent.post(operation("insert", "after")) == 204
        events = beside + consumer.take(1 + room + 1 - len(beside))
        assert [event.operation["id"] for event in events] == [
            "before",
            *(f"u{n}" for n in range(room)),
            "after",
        ]
        assert offsets(events) == list(range(1, room + 3))


def limit_file_size(agent: Agent, size: int) -> None:
    _, hard = resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def test_an_agent_on_a_full_disk_refuses_operations_until_there_is_room_and_loses_none(
    tmp_path: Path,
) -> None:
    words = ("oplog.db", "disk")
    with Agent(tmp_path, "--heartbeat", "200ms") as agent, agent.follow() as consumer:
        limit_file_size(agent, 1024 * 1024)
        stored = []
        for number in itertools.count():
            ids = [f"{number}-{index}" for index in range(100)]
            batch = [operation("insert", id_, "thing", "p" * 500) for id_ in ids]
            stored += ids
            answer = agent.request("POST", "/", batch)
            if answer.status != 200:
                break  # already being written, so it stays in the queue
        assert number > 3
        assert_refused(answer, "not confirmed, it may still be stored", *words)
        status = assert_degraded(agent, *words)
        assert (status["events_ingested"], status["queue_size"]) == (number * 100, 100)
        assert_refused(
            agent.request("POST", "/", operation("insert", "refused")), "dropped", *words
        )
        agent.send_udp(operation("insert", "u1"), operation("insert", "u2"))
        agent.wait_status(queue_size=102)
        assert {event.operation["id"] for event in agent.replicate().values()} == set(stored[:-100])

        limit_file_size(agent, resource.RLIM_INFINITY)
        assert_recovers(agent, events_ingested=number * 100 + 102, events_discarded=1)
        stored += ["u1", "u2"]
        events = consumer.take(len(stored))
        assert [event.operation["id"] for event in events] == stored
        assert offsets(events) == list(range(1, len(stored) + 1))
        agent.process.kill()
    with Agent(tmp_path) as agent:
        assert [event.operation["id"] for event in agent.replicate().values()] == stored


MAIN = "\nimport sys\nfrom oplogd.cli import main\nsys.exit(main())\n"
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))"
# Takes from root the rights to override permissions: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH.
OBEDIENT = """
import ctypes
libc = ctypes.CDLL(None)
version, sets = (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()
assert libc.capget(version, sets) == 0
for effective_or_permitted in (0, 1):
    sets[effective_or_permitted] &= ~0b110
assert libc.capset(version, sets) == 0
"""


class ObedientAgent(Agent):
    """An agent that obeys permissions, although the tests may run as root."""

    program = ("-c", OBEDIENT + MAIN)


def start_up_failure(store: Path, before: str = "") -> str:
    """Return the sentence with which the agent refuses to start. ``before``: code that runs first.

    The rest of its output is empty.
    """
    command = [sys.executable, "-c", before + MAIN]
    flags = ["--listen", "127.0.0.1:0", "--store", str(store)]
    done = forked.run([*command, *flags], capture_output=True, text=True, timeout=DEADLINE)
    out, err = done.stdout, done.stderr
    assert (done.returncode, out, err.count("\n")) == (1, "", 1), err
    assert str(store) in err
    assert "--store" in err
    return err


def test_an_agent_does_not_start_on_a_full_disk(tmp_path: Path) -> None:
    assert "disk" in start_up_failure(tmp_path / "oplog.db", FULL)
    with Agent(tmp_path) as agent:
        assert agent.post(operation("insert", "a")) == 204


def test_a_read_only_store_is_named_at_start_and_loses_nothing_if_made_so_later(
    tmp_path: Path,
) -> None:
    store = tmp_path / "oplog.db"
    with ObedientAgent(tmp_path) as agent:
        assert agent.post(operation("insert", "before")) == 204
        store.chmod(0o444)
        answered = agent.post(operation("insert", "after"))
        agent.send_udp(operation("insert", "udp"))
        agent.wait_status(events_received=3)
        assert answered == 204  # the open file can be written
        assert agent.stop() == 0

    assert "permission" in start_up_failure(store, OBEDIENT)
    store.chmod(0o644)
    tmp_path.chmod(0o555)
    try:
        assert "folder" in start_up_failure(store, OBEDIENT)
        assert "folder" in start_up_failure(tmp_path / "new.db", OBEDIENT)
    finally:
        tmp_path.chmod(0o755)
    with ObedientAgent(tmp_path) as agent:
        assert list(agent.replicate()) == ["thing/before", "thing/after", "thing/udp"]


PAGE = 4096


def filled_store(folder: Path) -> tuple[bytes, list[str]]:
    """Return the file of a stopped store and the ids of its objects."""
    ids = [f"n{number}" for number in range(5_000)]
    with Agent(folder) as agent:
        assert agent.post([operation("insert", id_) for id_ in ids]) == 200
        assert agent.stop() == 0
    assert [path.name for path in folder.iterdir()] == ["oplog.db"]
    return (folder / "oplog.db").read_bytes(), ids


def test_a_damaged_file_is_named_at_start(tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    sound, ids = filled_store(tmp_path)
    noise = random.Random(1).randbytes(len(sound))
    damaged = {
        "first page": noise[:PAGE] + sound[PAGE:],
        "all but the first page": sound[:PAGE] + noise[PAGE:],
        "cut off": sound[: 2 * PAGE],
        "zeros": bytes(len(sound)),
        "a text": b"dear diary\n" * 1000,
    }
    for name, content in damaged.items():
        store.write_bytes(content)
        assert "it is damaged" in start_up_failure(store), name  # its path has the word, too
        assert store.read_bytes() == content, name
    store.write_bytes(sound)
    with Agent(tmp_path) as agent:
        assert [event.operation["id"] for event in agent.replicate().values()] == ids


def test_a_file_damaged_under_a_running_agent_degrades_it_until_the_file_is_repaired(
    tmp_path: Path,
) -> None:
    store = tmp_path / "oplog.db"
    sound, ids = filled_store(tmp_path)
    noise = random.Random(2).randbytes(len(sound))
    with (
        ObedientAgent(tmp_path, "--heartbeat", "200ms") as agent,
        agent.follow() as consumer,
    ):
        with store.open("r+b") as file:
            file.seek(PAGE)
            file.write(noise[PAGE:])
        words = ("oplog.db", "damaged")
        assert_refused(agent.request("POST", "/", operation("insert", "being written")), *words)
        assert_degraded(agent, *words)
        assert_refused(agent.request("POST", "/", operation("insert", "refused")), *words)
        assert_refused(
            agent.request(
                "GET", "/", headers={"Accept": "text/event-stream", "Last-Event-ID": "0"}
            ),
            *words,
        )
        agent.send_udp(operation("insert", "udp"))
        agent.wait_status(queue_size=2)
        with store.open("r+b") as file:
            store.chmod(0o444)
            file.write(sound)
        wait_reason(agent, "cannot be written")
        assert_degraded(agent, "oplog.db", "permissions")
        store.chmod(0o644)
        assert_recovers(agent, events_ingested=2)
        ids += ["being written", "udp"]
        assert [event.operation["id"] for event in consumer.take(2)] == ids[-2:]
        assert [event.operation["id"] for event in agent.replicate().values()] == ids
        assert agent.stop() == 0
