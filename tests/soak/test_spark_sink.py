"""500,000 rows into a topic by Spark on two workers, whose drivers and tasks die: each row once."""

import subprocess
import sys
from pathlib import Path

from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.paths import ROOT
from tests.kits.proxies.http import Fault, HttpProxy
from tests.kits.spark.cluster import cluster, environ
from tests.soak.conftest import Rounds
from tests.soak.publishing import TOPIC

FILES = 10
ROWS = 50_000
# Of each driver that is killed: the fault of its first commit, and the number of partitions.
KILLED = [
    (Fault.LOSE_REQUEST, 3),  # before the agent's commit
    (Fault.LOSE_ANSWER, 4),  # after it
    (Fault.HOLD, 2),  # before it, and the commit arrives beside the next driver
]


def test_each_row_is_published_once_although_tasks_and_drivers_die(
    rounds: Rounds, tmp_path: Path
) -> None:
    for number in rounds():
        folder = tmp_path / str(number)
        (folder / "lines").mkdir(parents=True)
        for file in range(FILES):
            lines = (f"line {file * ROWS + row}\n" for row in range(ROWS))
            (folder / f"lines/{file}.txt").write_text("".join(lines))
        with (
            Agent(folder) as agent,
            HttpProxy(agent.port) as proxy,
            cluster(folder, workers=2) as master,
        ):
            topic = Topic(agent, TOPIC).create()
            for fault, partitions in KILLED:
                commits = proxy.disturb(fault, "/commit", times=1 if fault is Fault.HOLD else 99)
                driver = start(master, proxy.url, folder, partitions)
                proxy.wait_reached(commits)
                driver.kill()
                driver.wait()
                if fault is not Fault.HOLD:
                    proxy.end(commits)
            records = proxy.disturb(Fault.LOSE_ANSWER, "/records")
            driver = start(master, proxy.url, folder, partitions=5)
            proxy.wait_reached(records)
            (late,) = proxy.end(commits)
            assert late.status == 200
            assert driver.wait() == 0
            assert_each_once(topic)


def start(master: str, url: str, folder: Path, partitions: int) -> subprocess.Popen[bytes]:
    arguments = [master, url, str(folder), str(partitions), "0.2"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.soak.publishing", *arguments],
        cwd=ROOT,
        env={**environ(), "PYTHONPATH": str(ROOT)},
    )


def assert_each_once(topic: Topic) -> None:
    found: list[int] = []
    position = None
    while messages := topic.poll(position, inclusive=False, isolation="read_committed"):
        found += [int(each.payload.split()[1]) for each in messages]
        position = messages[-1].id
    assert len(found) == FILES * ROWS
    assert sorted(found) == list(range(FILES * ROWS))
