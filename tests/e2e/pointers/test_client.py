"""The publisher for foreign transactions over two agents on one store that lose answers."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from oplogc.topics import ForeignTransaction, OutcomeUnknownError, Topics
from tests.e2e.pointers.pointers import agents_on, read, read_snapshot, wait_for_read
from tests.kits.agents.topics import Topic
from tests.kits.proxies.chaos import ChaosProxy
from tests.kits.servers.stores import StorePlace

FAST = (0.01, 0.05)
# As large as those of Tephra.
FIRST = 1_800_000_000_000_000_000


@pytest.mark.parametrize(
    ("place", "transactions"),
    [("sqlite", 30), ("mongo-plain", 20)],
    indirect=["place"],
)
def test_each_transaction_is_there_once_or_is_gone_from_all_its_topics_at_all_agents(
    place: StorePlace, transactions: int, tmp_path: Path
) -> None:
    """Small transactions are published at once, larger ones are stored first."""
    names = ("client/x", "client/y")
    kept: list[str] = []
    lost: set[int] = set()
    with ExitStack() as stack:
        agents = stack.enter_context(agents_on(place, tmp_path, 2))
        for name in names:
            Topic(agents[0], name).create()
        proxies = [
            stack.enter_context(ChaosProxy(agent.port, seed=number, most_bytes=1200))
            for number, agent in enumerate(agents)
        ]
        topics = stack.enter_context(Topics([each.url for each in proxies], backoff=FAST))
        publisher = topics.foreign_publisher(max_buffered_bytes=60)
        for number in range(transactions):
            pointer = FIRST + number
            publisher.start(ForeignTransaction(pointer - 1, pointer))
            messages = [f"{number}.{each}" for each in range(1 + number % 8)]
            try:
                for message in messages:
                    for name in names:
                        publisher.publish(name, message)
                publisher.persist()
            except OutcomeUnknownError:
                lost.add(pointer)
                publisher.rollback()
                continue
            if number % 5 == 4:
                lost.add(pointer)
                publisher.rollback()
                continue
            kept += messages
            topics.pointers.commit(pointer, names)
        assert all(proxy.cuts for proxy in proxies)
        assert lost
        for agent in agents:
            for name in names:
                at = Topic(agent, name)
                wait_for_read(at, *kept)
                last = FIRST + transactions
                found = read_snapshot(at, last, invalid=[*map(str, lost)])
                assert found == read_snapshot(at, last, invalid=[*lost]) == read(at)
        for name in names:
            with Topics(agents[1].url) as direct:
                assert direct.pointers.list(name) == ()
