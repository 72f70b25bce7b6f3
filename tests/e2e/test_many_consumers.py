"""Many consumers, slow ones, choosy ones, and several writers: everybody gets the same log."""

import asyncio
import hashlib
import http.client
import json
import random
import resource
import signal
import statistics
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.agents import DEADLINE, Agent, fold
from tests.e2e.append_process import appender
from tests.e2e.streams import ByteStream, ChunkedBody, offset_of, offsets, operation, parse, request

CONSUMERS = 1000
OPERATIONS = 2000


def resident_bytes(agent: Agent) -> int:
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


LOAD = 10_000
"""So many updates of 1 KB; each object is updated once."""


def load(agent: Agent, reader: ByteStream) -> None:
    for first in range(0, LOAD, 500):
        ids = [f"n{number}" for number in range(first, first + 500)]
        assert agent.post([operation("update", id_, "thing", "p" * 900) for id_ in ids]) == 200
        assert [event.operation["id"] for event in reader.take(500)] == ids


def test_consumers_that_do_not_read_cost_bounded_memory_and_slow_nobody(tmp_path: Path) -> None:
    stalled, bytes_each = 20, 1_500_000
    flags = ("--ring-size", "1000", "--ring-bytes", "1MB", "--capped-collection-size", "4MB")
    with Agent(tmp_path, *flags) as agent, ByteStream(agent) as reader, ExitStack() as stack:
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
        # The first ones also pay for what the agent keeps for all, the others show what each one costs.
        assert resident[1] - resident[0] < stalled * bytes_each

        assert agent.post(operation("insert", "last")) == 204
        (last,) = reader.take(1)
        for stream in slow[:3]:  # their places have left the log: the states take them back to it
            state = fold(take_until(stream, last.id))
            assert set(state) == {*(f"thing/n{number}" for number in range(LOAD)), "thing/last"}
            assert state["thing/last"] == last.data


def take_until(stream: ByteStream, id_: str) -> list[Any]:
    events = stream.take(1)
    while events[-1].id != id_:
        events += stream.take(1)
    return events


def grown_by(folder: Path, parents: list[str]) -> int:
    """How much memory an agent with a small ring takes for far more operations with these parents than it holds."""
    folder.mkdir()
    with Agent(folder, "--ring-bytes", "8MB", "--capped-collection-size", "4MB") as agent:
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


def test_operations_with_thousands_of_parents_take_no_more_memory_than_simple_ones_of_their_size(
    tmp_path: Path,
) -> None:
    many = [f"p{number:04d}" for number in range(4000)]
    size = len(json.dumps(many, separators=(",", ":")))
    simple = grown_by(tmp_path / "simple", ["p" * (size - 4)])
    # The one of many parents also decodes them, a batch at a time. Kept decoded they would take another 60 MB.
    assert grown_by(tmp_path / "many", many) < simple + 24 * 1024 * 1024


def grown_by_streams(folder: Path, filters: list[str]) -> int:
    """How much memory an agent takes for consumers that do not read, while operations come that pass all their filters."""
    folder.mkdir()
    with Agent(folder) as agent, ExitStack() as stack:
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
    # The bytes on their way to a connection are its own. A list of all that passed would be 2 MB for each consumer.
    assert different < equal + 50 * 600_000


@pytest.fixture
def many_files() -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Consumer(asyncio.Protocol):
    """Counts and digests what it is sent; ``keep`` says whether it also keeps it."""

    def __init__(self, expected: int, keep: bool) -> None:
        loop = asyncio.get_running_loop()
        self.established: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self.kept: list[bytes] | None = [] if keep else None
        self.count = 0
        self.digest = hashlib.sha1()
        self._expected = expected
        self._body = ChunkedBody()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(request())

    def data_received(self, data: bytes) -> None:
        for chunk in self._body.feed(data):
            if chunk != b":\n":
                self.count += chunk.count(b"\nevent: ")
                self.digest.update(chunk)
                if self.kept is not None:
                    self.kept.append(chunk)
        if self._body.head and not self.established.done():
            self.established.set_result(None)
        if self.count >= self._expected and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        for future in (self.established, self.done):
            if not future.done():
                future.set_exception(
                    error or EOFError(f"the stream ended after {self.count} events")
                )


@pytest.mark.usefixtures("many_files")
async def test_1000_consumers_each_get_each_of_2000_operations_in_order(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    ids = [f"n{number}" for number in range(OPERATIONS)] + ["the end"]
    batches = [ids[first : first + 50] for first in range(0, len(ids), 50)]
    with Agent(tmp_path) as agent:
        async with asyncio.timeout(3 * DEADLINE):
            consumers = []
            for number in range(CONSUMERS):
                _, consumer = await loop.create_connection(
                    partial(Consumer, len(ids), number == 0), "127.0.0.1", agent.port
                )
                consumers.append(consumer)
            await asyncio.gather(*(consumer.established for consumer in consumers))
            assert (await asyncio.to_thread(agent.status))["clients"] == CONSUMERS
            for batch in batches:
                status = await asyncio.to_thread(
                    agent.post, [operation("insert", id_) for id_ in batch]
                )
                assert status == 200
            await asyncio.gather(*(consumer.done for consumer in consumers))
        reference = consumers[0]
        assert reference.kept is not None
        events = parse(b"".join(reference.kept))
        assert [event.operation["id"] for event in events] == ids
        assert offsets(events) == list(range(1, len(ids) + 1))
        assert {consumer.count for consumer in consumers} == {len(ids)}
        assert {consumer.digest.digest() for consumer in consumers} == {reference.digest.digest()}
        await asyncio.to_thread(lambda: agent.wait_status(events_sent=CONSUMERS * len(ids)))
        for consumer in consumers:
            consumer.transport.close()
        await asyncio.to_thread(lambda: agent.wait_status(clients=0))


def some(chance: random.Random, letter: str, count: int) -> str:
    """Up to three of so many values, and ``end``."""
    values = sorted({f"{letter}{chance.randrange(count)}" for _ in range(chance.randrange(1, 4))})
    return ",".join([*values, "end"])


def random_filters(chance: random.Random, count: int) -> list[dict[str, str]]:
    """Distinct filters by types, by parents and by both. Each lets ``end`` pass."""
    filters: dict[tuple[str, str], dict[str, str]] = {}
    while len(filters) < count:
        types = some(chance, "t", 20)
        parents = some(chance, "p", 50)
        one: dict[str, str] = chance.choice(
            [{"types": types}, {"parents": parents}, {"types": types, "parents": parents}]
        )
        filters[one.get("types", ""), one.get("parents", "")] = one
    return list(filters.values())


def passes(sent: dict[str, Any], query: dict[str, str]) -> bool:
    if "types" in query and sent["type"] not in query["types"].split(","):
        return False
    return "parents" not in query or bool(set(sent["parents"]) & set(query["parents"].split(",")))


@pytest.mark.parametrize("ring_size", [65536, 16], ids=["from the ring", "from the store"])
def test_consumers_with_200_different_filters_each_get_exactly_theirs(
    tmp_path: Path, ring_size: int
) -> None:
    chance = random.Random(200)
    filters = random_filters(chance, 200)
    sent = [
        operation(
            chance.choice(["insert", "update", "delete"]),
            f"n{chance.randrange(500)}",
            f"t{chance.randrange(20)}",
            *(f"p{chance.randrange(50)}" for _ in range(chance.randrange(4))),
        )
        for _ in range(2000)
    ]
    sent.append(operation("insert", "end", "end", "end"))
    expected = [
        [number for number, one in enumerate(sent, 1) if passes(one, query)] for query in filters
    ]
    assert len({tuple(numbers) for numbers in expected}) == 200
    half = len(sent) // 2
    with Agent(tmp_path, "--ring-size", str(ring_size)) as agent, ExitStack() as stack:
        streams = [stack.enter_context(ByteStream(agent, query=query)) for query in filters]
        whole = stack.enter_context(ByteStream(agent))
        for first in range(0, len(sent), 500):
            assert agent.post(sent[first : first + 500]) == 200
        log = whole.until_offset(len(sent))
        for stream, query, numbers in zip(streams, filters, expected, strict=True):
            assert stream.until_offset(len(sent)) == [log[number - 1] for number in numbers], query
            stream.close()
        agent.wait_status(clients=1)
        for query, numbers in zip(filters, expected, strict=True):
            with ByteStream(agent, log[half - 1].id, query) as resumed:
                rest = [log[number - 1] for number in numbers if number > half]
                assert resumed.until_offset(len(sent)) == rest, query
        assert agent.wait_status(queue_size=0)["events_sent"] == len(sent) + sum(
            len(numbers) + sum(number > half for number in numbers) for numbers in expected
        )


def test_what_another_process_appends_reaches_the_consumers_within_100_ms(tmp_path: Path) -> None:
    with (
        Agent(tmp_path) as agent,
        appender(tmp_path / "oplog.db") as other,
        ByteStream(agent) as stream,
    ):
        assert agent.post(operation("insert", "own")) == 204
        latencies = []
        for number in range(20):
            durable_ms = other.append(
                [operation("insert", f"foreign {number}"), operation("update", "own")]
            )
            if number == 0:
                assert [event.operation["id"] for event in stream.take(1)] == ["own"]
            events = stream.take(2)
            latencies.append(time.time() * 1000 - durable_ms)
            assert [event.operation["id"] for event in events] == [f"foreign {number}", "own"]
            assert offsets(events) == [2 * number + 2, 2 * number + 3]
        assert agent.post(operation("delete", "own")) == 204
        (last,) = stream.take(1)
        assert (last.event, offset_of(last.id)) == ("delete", 42)
        assert len(agent.replicate()) == 20
        assert statistics.median(latencies) < 100, latencies


def test_a_log_that_outran_a_suspended_agent_is_bridged_by_the_states(tmp_path: Path) -> None:
    flags = ("--capped-collection-size", "4096")
    with (
        Agent(tmp_path, *flags) as agent,
        appender(tmp_path / "oplog.db") as other,
        ByteStream(agent) as stream,
    ):
        other.append([operation("insert", f"n{number}") for number in range(10)])
        events = stream.take(10)
        agent.process.send_signal(signal.SIGSTOP)
        for number in range(100):
            other.append([operation("insert" if number % 3 else "delete", f"n{number}")])
        agent.process.send_signal(signal.SIGCONT)
        events += stream.until_live()
        assert offset_of(agent.status()["store"]["oldest_id"]) > 11
        assert events[-1].id == agent.status()["store"]["newest_id"]
        assert set(fold(events)) == {f"thing/n{number}" for number in range(100) if number % 3}
        assert "reset" not in {event.event for event in events}
        other.append([operation("delete", "n1")])
        (deleted,) = stream.take(1)
        assert (deleted.event, offset_of(deleted.id)) == ("delete", 111)


def test_two_agents_on_one_file_and_a_third_writer_give_all_consumers_the_same_sequence(
    tmp_path: Path,
) -> None:
    each = 100
    with (
        Agent(tmp_path) as one,
        Agent(tmp_path) as two,
        appender(tmp_path / "oplog.db") as third,
        ExitStack() as stack,
    ):
        streams = [stack.enter_context(ByteStream(agent)) for agent in (one, two) for _ in range(3)]
        names = ["one a", "one b", "two a", "two b", "third"]
        failures: list[BaseException] = []

        def produce(name: str) -> None:
            try:
                if name == "third":
                    for number in range(each):
                        third.append([operation("insert", f"{name} {number}")])
                    return
                agent = one if name.startswith("one") else two
                connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=DEADLINE)
                for number in range(each):
                    body = json.dumps(operation("insert", f"{name} {number}"))
                    connection.request("POST", "/", body, {"Content-Type": "application/json"})
                    with connection.getresponse() as response:
                        assert response.status == 204
                connection.close()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=produce, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        sequences = [stream.until_offset(each * len(names)) for stream in streams]
        for thread in threads:
            thread.join(DEADLINE)
        assert failures == []
        sequence = sequences[0]
        assert offsets(sequence) == list(range(1, each * len(names) + 1))
        assert all(other == sequence for other in sequences)
        for name in names:
            own = [
                event.operation["id"]
                for event in sequence
                if event.operation["id"].startswith(name)
            ]
            assert own == [f"{name} {number}" for number in range(each)]
        for agent in (one, two):
            assert list(agent.replicate()) == [event.key for event in sequence]
            assert agent.stop() == 0
        assert [list(stream.blocks()) for stream in streams] == [[]] * len(streams)
