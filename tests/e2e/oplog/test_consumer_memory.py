"""The memory of consumers: bounded if stalled, about equal for any parents and filters."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.kits.agents.agent import DEADLINE, Agent, NewAgent, fold
from tests.kits.agents.streams import ByteStream, operation


def resident_bytes(agent: Agent) -> int:
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


# Updates of 1 KB, each of another object.
LOAD = 5_000


def load(agent: Agent, reader: ByteStream) -> None:
    for first in range(0, LOAD, 500):
        ids = [f"n{number}" for number in range(first, first + 500)]
        assert agent.post([operation("update", id_, "thing", "p" * 900) for id_ in ids]) == 200
        assert [event.operation["id"] for event in reader.take(500)] == ids


def test_consumers_that_do_not_read_cost_bounded_memory_and_slow_nobody(tmp_path: Path) -> None:
    stalled, bytes_each = 20, 1_500_000
    flags = ("--ring-size", "1000", "--ring-bytes", "1MB", "--capped-collection-size", "4MB")
    with NewAgent(tmp_path, *flags) as agent, ByteStream(agent) as reader, ExitStack() as stack:
        load(agent, reader)
        slow: list[ByteStream] = []
        resident: list[int] = []
        for _ in range(2):
            # From the ring, from the log in the store, and from the states.
            starts = [None, agent.status()["store"]["oldest_id"], "0", None] * (stalled // 4)
            slow += [
                stack.enter_context(ByteStream(agent, start, receive_buffer=4096))
                for start in starts
            ]
            load(agent, reader)
            resident.append(resident_bytes(agent))
        assert agent.status()["clients"] == 2 * stalled + 1
        # The first round includes memory shared by all; the second shows the cost of each consumer.
        assert resident[1] - resident[0] < stalled * bytes_each

        assert agent.post(operation("insert", "last")) == 204
        (last,) = reader.take(1)
        for stream in slow[:3]:  # their places have left the log: states bridge the gap
            state = fold(take_until(stream, last.id))
            assert set(state) == {*(f"thing/n{number}" for number in range(LOAD)), "thing/last"}
            assert state["thing/last"] == last.data


def take_until(stream: ByteStream, id_: str) -> list[Any]:
    events = stream.take(1)
    while events[-1].id != id_:
        events += stream.take(1)
    return events


def grown_by(folder: Path, parents: list[str]) -> int:
    """Return by how much an agent's memory grows with more operations than its ring holds."""
    folder.mkdir()
    with NewAgent(folder, "--ring-bytes", "8MB", "--capped-collection-size", "4MB") as agent:
        assert agent.post([operation("update", "first", "thing", *parents)] * 10) == 200
        before = resident_bytes(agent)
        for first in range(0, 400, 20):
            assert (
                agent.post(
                    [
                        operation("update", f"n{n}", "thing", *parents)
                        for n in range(first, first + 20)
                    ]
                )
                == 200
            )
        deadline = time.monotonic() + DEADLINE
        while (status := agent.status())["store"]["lag"]["follower"]:
            assert time.monotonic() < deadline, status
        ring = status["ring"]
        assert ring["max_bytes"] * 0.9 < ring["bytes"] <= ring["max_bytes"]
        return resident_bytes(agent) - before


def test_operations_with_thousands_of_parents_take_no_more_memory_than_others_of_their_size(
    tmp_path: Path,
) -> None:
    many = [f"p{number:04d}" for number in range(4000)]
    size = len(json.dumps(many, separators=(",", ":")))
    simple = grown_by(tmp_path / "simple", ["p" * (size - 4)])
    # Parents are decoded one batch at a time. Kept decoded, they would take another 60 MB.
    assert grown_by(tmp_path / "many", many) < simple + 24 * 1024 * 1024


def grown_by_streams(folder: Path, filters: list[str]) -> int:
    """Return by how much stalled consumers, whose filters pass all, grow an agent's memory."""
    folder.mkdir()
    with NewAgent(folder) as agent, ExitStack() as stack:
        batch = [operation("update", f"n{number}", "video") for number in range(500)]
        assert agent.post(batch) == 200
        before = resident_bytes(agent)
        for types in filters:
            stack.enter_context(ByteStream(agent, query={"types": types}, receive_buffer=4096))
        for _ in range(30):
            assert agent.post(batch) == 200
        agent.wait_status(clients=len(filters))
        deadline = time.monotonic() + DEADLINE
        while (status := agent.status())["store"]["lag"]["follower"]:
            assert time.monotonic() < deadline, status
        return resident_bytes(agent) - before


def test_consumers_whose_filters_differ_take_about_the_memory_of_consumers_that_share_one(
    tmp_path: Path,
) -> None:
    equal = grown_by_streams(tmp_path / "equal", ["own,video"] * 50)
    different = grown_by_streams(
        tmp_path / "different", [f"own{number},video" for number in range(50)]
    )
    # Each connection has its own bytes in flight. A list of all events takes 2 MB per consumer.
    assert different < equal + 50 * 600_000
