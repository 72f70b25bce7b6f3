"""Many consumers: each gets every operation that passes its filter, in the same order."""

import asyncio
import hashlib
import random
import resource
from collections.abc import Generator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.streams import ByteStream, offsets, operation, parse
from tests.kits.sse.stream import ChunkedBody, stream_request

CONSUMERS = 1000
OPERATIONS = 60


@pytest.fixture
def many_files() -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class DigestingConsumer(asyncio.Protocol):
    """Counts its events and digests its bytes; with ``keep`` it also keeps them."""

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
        transport.write(stream_request())

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
async def test_1000_consumers_each_get_each_operation_in_order(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    ids = [f"n{number}" for number in range(OPERATIONS)] + ["the end"]
    batches = [ids[first : first + 15] for first in range(0, len(ids), 15)]
    with Agent(tmp_path) as agent:
        async with asyncio.timeout(3 * DEADLINE):
            consumers = []
            for number in range(CONSUMERS):
                _, consumer = await loop.create_connection(
                    partial(DigestingConsumer, len(ids), number == 0), "127.0.0.1", agent.port
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
    """Return up to three of ``count`` values, and ``end``."""
    values = sorted({f"{letter}{chance.randrange(count)}" for _ in range(chance.randrange(1, 4))})
    return ",".join([*values, "end"])


def random_filters(chance: random.Random, count: int) -> list[dict[str, str]]:
    """Return distinct filters by types, by parents and by both. All of them pass ``end``."""
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
def test_consumers_with_200_different_filters_each_get_exactly_the_operations_that_pass(
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
        for _ in range(1200)
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
