"""A disk that fills and empties for as long as it takes, with kills and deletions in between."""

import random
from pathlib import Path

from tests.kits.agents.disk import SECONDS, DiskAgent
from tests.kits.agents.topics import Topic
from tests.kits.clock.waiting import attempts
from tests.kits.processes.disk import SmallDisk
from tests.soak.conftest import Rounds

MOST = 1000
LARGE = "p" * 60_000


def test_a_disk_that_fills_and_empties_loses_nothing_and_keeps_nobody_out(
    rounds: Rounds, tmp_path: Path
) -> None:
    with SmallDisk(tmp_path / "disk", "size=24m") as disk:
        agent = DiskAgent(disk)
        agent.__enter__()
        try:
            taken: list[str] = []
            kept = Topic(agent, "tests/kept").create()
            for number in rounds():
                source = random.Random(number)
                dropped = Topic(agent, f"tests/dropped{number}").create()
                for count in range(MOST):
                    name = f"{number} {count}"
                    if kept.try_publish([{"payload": name}]).status == 200:
                        taken.append(name)
                    if dropped.try_publish([{"payload": LARGE}]).status != 200:
                        break
                else:
                    raise AssertionError("the disk is never full")
                filler = disk.fill(leave=source.choice((0, 0, 4096, 1 << 20)))
                if source.random() < 0.5:
                    agent.kill()
                    agent = DiskAgent(disk)
                    agent.__enter__()
                    kept, dropped = Topic(agent, kept.name), Topic(agent, dropped.name)
                confirmed = {*taken}
                assert [each for each in kept.payloads() if each in confirmed] == taken, number
                steps = [dropped.delete, filler.unlink]
                source.shuffle(steps)
                for step in steps:
                    step()
                wait_taken(kept, taken, f"{number} last")
        finally:
            agent.__exit__(None, None, None)


def wait_taken(topic: Topic, taken: list[str], name: str) -> None:
    for _ in attempts(SECONDS):
        if topic.try_publish([{"payload": name}]).status == 200:
            taken.append(name)
            return
    raise AssertionError(f"still refused: {topic.agent.status()}")
