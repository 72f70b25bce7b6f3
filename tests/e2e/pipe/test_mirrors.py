"""Pipes that send a log to each other."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.topics import Topic
from tests.kits.clock.waiting import attempts
from tests.kits.pipe.processes import PipeFolder


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in ("west", "east", "south")]
    for each in found:
        each.mkdir()
    return found


def mirror(folder: Path, source: str, target: str, log: str) -> PipeFolder:
    sink = {"name": "mirror", "type": "oplog", "agents": [target], "log": log}
    (folder / "pipes").mkdir(exist_ok=True)
    folder = folder / "pipes" / str(len(list((folder / "pipes").iterdir())))
    folder.mkdir()
    return PipeFolder(folder, [], [sink], sources=[{"agents": [source], "log": log}])


def payloads(topic: Topic) -> list[str]:
    answer = topic.agent.request("POST", f"{topic.path}/poll", {})
    return [each["payload"] for each in answer.json]


@pytest.mark.parametrize("count", [2, 3])
def test_topics_that_are_mirrored_in_a_circle_have_each_message_once(
    places: list[Path], count: int
) -> None:
    with ExitStack() as stack:
        agents = [stack.enter_context(Agent(each)) for each in places[:count]]
        topics = [Topic(each, "shop/orders").create() for each in agents]
        pipes = [
            mirror(places[n], each.url, agents[(n + 1) % count].url, "shop/orders")
            for n, each in enumerate(agents)
        ]
        for pipe in pipes:
            stack.enter_context(pipe.run())
        for n, topic in enumerate(topics):
            topic.publish(*({"payload": f"{n}-{k}", "key": "k"} for k in range(3)))
        sent = sorted(f"{n}-{k}" for n in range(count) for k in range(3))
        for topic in topics:
            for _ in attempts(DEADLINE):
                if len(payloads(topic)) >= len(sent):
                    break
        # Each pipe has had all messages of its topic: none is on its way any more.
        for pipe in pipes:
            pipe.wait_status(lambda status: status["sinks"][0]["flushed"] >= len(sent) - 1)
        for topic in topics:
            assert sorted(payloads(topic)) == sent
        for pipe in pipes:
            assert pipe.status()["log"]["end"] == len(sent)


def test_an_operation_that_goes_round_is_named(places: list[Path]) -> None:
    with Agent(places[0]) as west, Agent(places[1]) as east:
        there = mirror(places[0], west.url, east.url, "system/oplog")
        back = mirror(places[1], east.url, west.url, "system/oplog")
        with there.run() as first, back.run():
            west.post([{"event": "insert", "type": "video", "id": "x1"}])
            told = first.wait_log("came 10 times")
    assert "the same operation, insert video 'x1'" in told
    assert east.url in told
