"""The agents of two workers on one file, in one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from oplogd.agent import Agent
from oplogd.config.settings import Settings
from oplogd.errors import TopicNotFoundError
from oplogd.model.message import of_payload
from oplogd.model.names import TopicName
from oplogd.server import make_store
from oplogd.topics.codec.codec import PollRequest
from oplogd.web.app import create_web
from oplogd.workers.workers import Worker, Workers
from tests.kits.processes.logged import DEADLINE
from tests.kits.servers.stores import skip_fsync

NAME = TopicName("ns", "t")
ROUNDS = 20
READERS = 2


@asynccontextmanager
async def agent_of(worker: Worker, folder: Path) -> AsyncIterator[Agent]:
    settings = Settings(store=folder / "oplog.db", disk_reserve=0)
    store = make_store(settings, worker=worker)
    agent = Agent(settings, store, [], worker=worker)
    await store.open()
    await agent.start()
    try:
        yield agent
        assert not agent.failed.done()
    finally:
        await agent.drain()
        await agent.stop()
        await store.close()


@pytest.fixture
async def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Agent]]:
    skip_fsync(monkeypatch)
    workers = Workers(2)
    async with (
        agent_of(Worker(workers, 0), tmp_path) as first,
        agent_of(Worker(workers, 1), tmp_path) as second,
    ):
        yield [first, second]


async def poll(agent: Agent) -> int:
    """Return the number of messages in the topic."""
    return len((await agent.topics.poller.poll(NAME, PollRequest())).messages)


async def followed(agents: list[Agent]) -> None:
    """Wait until all polls are answered from memory."""
    for agent in agents:
        topic = await agent.topics.known.find(NAME)
        while agent.feeds.peek(topic, None, ROUNDS, 1 << 20) is None:
            await asyncio.sleep(0)


async def test_a_poll_at_any_worker_has_each_acknowledged_message(agents: list[Agent]) -> None:
    await agents[0].store.topics.create(NAME, None)
    async with asyncio.timeout(DEADLINE):
        await followed(agents)
    acknowledged = 0
    lacking: list[tuple[int, int]] = []
    ended = asyncio.Event()

    async def read(agent: Agent) -> None:
        while not ended.is_set():
            least = acknowledged
            if (found := await poll(agent)) < least:
                lacking.append((found, least))
            await asyncio.sleep(0)  # a poll answered from memory never waits

    readers = [asyncio.create_task(read(agents[number % 2])) for number in range(READERS)]
    async with asyncio.timeout(DEADLINE):
        for number in range(ROUNDS):
            writer, other = agents[number % 2], agents[1 - number % 2]
            await writer.topics.publisher.publish(NAME, [of_payload(b"x", None)])
            acknowledged += 1
            assert await poll(other) == await poll(writer) == acknowledged
        ended.set()
        await asyncio.gather(*readers)
        assert lacking == []
        await followed(agents)
    assert min(agent.worker.tallies.write_waits.count for agent in agents) >= ROUNDS // 2


async def test_a_topic_deleted_and_created_again_at_one_worker_is_new_at_the_other(
    agents: list[Agent],
) -> None:
    for number in range(20):
        here, there = agents[number % 2], agents[1 - number % 2]
        await here.store.topics.create(NAME, None)
        assert await poll(there) == 0
        await there.topics.publisher.publish(NAME, [of_payload(b"x", None)])
        assert await poll(here) == await poll(there) == await poll(here) == await poll(there) == 1
        await here.store.topics.delete(NAME)
        here.feeds.deleted()
        with pytest.raises(TopicNotFoundError):
            await poll(there)
        here.topics.known.forget(NAME)


async def test_a_change_and_a_deletion_over_http_are_known_at_the_other_worker_at_once(
    agents: list[Agent],
) -> None:
    here, there = agents
    path = f"/v1/namespaces/{NAME.namespace}/topics/{NAME.topic}"
    transport = httpx.ASGITransport(create_web(here).app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.put(path)).status_code == 200
        known = there.feeds.shared.changes
        changed = await client.put(f"{path}/properties", json={"ttl": 60})
        assert (changed.status_code, there.feeds.shared.changes) == (200, known + 1)
        deleted = await client.delete(path)
        assert (deleted.status_code, there.feeds.shared.changes) == (200, known + 2)
