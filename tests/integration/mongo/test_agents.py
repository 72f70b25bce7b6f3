"""Several agents on one database: one order for all, and states that are the fold of the log."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents.agent import Agent, fold
from tests.kits.mongo.agents import ResumingConsumer, agent, replicated, run_all
from tests.kits.processes.logged import DEADLINE

AGENTS = 3


def operation(number: int, keys: int) -> dict[str, Any]:
    """Return one of many operations on few objects, so that agents change the same ones."""
    event = "delete" if number % 7 == 6 else "update"
    return {
        "event": event,
        "type": "video",
        "id": str(number * 37 % keys),
        "parents": [str(number)],
    }


def producer(source: Agent, numbers: range, keys: int, over: str, size: int) -> Callable[[], None]:
    def produce() -> None:
        for start in range(0, len(numbers), size):
            batch = [operation(number, keys) for number in numbers[start : start + size]]
            if over == "udp":
                source.send_udp(*batch)
            else:
                assert source.post(batch) == 200

    return produce


@pytest.mark.parametrize(
    ("kind", "total", "keys", "cut", "size"),
    [("capped", 378, 40, 75, 28), ("plain", 5_004, 200, 120, 200)],
)
def test_three_agents_show_nine_consumers_one_order(
    kind: str,
    total: int,
    keys: int,
    cut: int,
    size: int,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    url = request.getfixturevalue("capped_url" if kind == "capped" else "plain_url")
    with ExitStack() as stack:
        agents = [stack.enter_context(agent(tmp_path, url, kind)) for _ in range(AGENTS)]
        urls = [each.url for each in agents]
        consumers = [ResumingConsumer(urls, first, total, cut) for first in range(3 * AGENTS)]
        for consumer in consumers:
            consumer.start()
        for consumer in consumers:
            assert consumer.established.wait(DEADLINE)
            assert consumer.error is None, consumer.error
        share = total // (3 * AGENTS)
        works = [
            producer(agents[n % AGENTS], range(n * share, (n + 1) * share), keys, over, size)
            for n in range(3 * AGENTS)
            for over in ("udp" if n < AGENTS else "http",)
        ]
        run_all(works)
        sequences = [consumer.result() for consumer in consumers]
        assert all(sequence == sequences[0] for sequence in sequences[1:])
        ids = [event.id for event in sequences[0]]
        assert [int(id_[12:], 16) for id_ in ids] == list(range(1, total + 1))
        assert ids == sorted(ids)
        assert sorted(int(event.operation["parents"][0]) for event in sequences[0]) == list(
            range(total)
        )
        expected = fold(sequences[0])
        for each in agents:
            assert replicated(each) == expected
            assert each.status()["events_discarded"] == 0
