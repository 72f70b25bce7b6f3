"""A pipe on two workers of Spark: frozen and killed executors, killed drivers, gaps, no agent.

The table in PostgreSQL equals the source in the end, and nothing that was deleted comes back.
"""

import json
import os
import random
import shlex
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from oplog_sync.classes import SPARK
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.clock.waiting import attempts
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.paths import ROOT
from tests.kits.servers.ports import free_port
from tests.kits.servers.postgres import PostgresServer
from tests.kits.spark.cluster import cluster, environ
from tests.soak.conftest import Rounds

OBJECTS = 3000
# How long an executor that does not answer counts as present.
TIMEOUTS = {
    "spark.network.timeout": "12s",
    "spark.network.timeoutInterval": "3s",
    "spark.executor.heartbeatInterval": "2s",
}
PACKAGES = f"{ROOT}:{ROOT}/clients/python"
OTHERS = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.executorEnv.PYTHONPATH": PACKAGES,
}
AWAY_SECONDS = 30
SMALL_LOG = ("--capped-collection-size", "100KB")


class World:
    """The objects of an agent, and the pipe's settings, checkpoint and table."""

    def __init__(self, folder: Path, url: str, master: str) -> None:
        self.folder = folder
        self._url = url
        self._master = master
        self._chance = random.Random()
        self._port = free_port()
        self._numbers = 0
        (folder / "agent").mkdir(parents=True)
        self.agent = self.start()
        sinks = [
            {
                "name": "objects",
                "type": "freezing:FreezingSink",
                "options": {"url": url, "folder": str(folder)},
                "batch": {"messages": 200},
            }
        ]
        sources = [{"agents": [f"http://127.0.0.1:{self._port}"]}]
        settings = {"name": "soak", "dir": "pipe", "sources": sources, "sinks": sinks}
        (folder / "freezing.py").write_text((ROOT / "tests/soak/freezing.py").read_text())
        (folder / "pipe.yaml").write_text(json.dumps(settings))

    def start(self) -> Agent:
        self.agent = agent_on(self._port, self.folder / "agent", *SMALL_LOG)
        return self.agent

    def change(self, count: int) -> None:
        events = self._chance.choices(("insert", "update", "delete"), (3, 4, 3), k=count)
        sent = []
        for event in events:
            self._numbers += 1
            id = f"{self._chance.randrange(OBJECTS)}"
            parents = [f"n{self._numbers}"]
            sent.append({"event": event, "type": "a", "id": id, "parents": parents})
        assert self.agent.post(sent) == 200

    def send(self, event: str, id: str) -> None:
        assert self.agent.post([{"event": event, "type": "a", "id": id, "parents": []}]) == 200

    def driver(self) -> "Driver":
        """Start the command of the page."""
        command = snippets(pages.OPERATE_PIPE_SPARK)[-1].code
        program, option, _, *words = shlex.split(command)
        assert (program, option) == ("spark-submit", "--master")
        there = {
            "oplog_pipe/__main__.py": str(ROOT / "oplog_pipe/__main__.py"),
            "pipe.yaml": str(self.folder / "pipe.yaml"),
            "checkpoint": str(self.folder / "checkpoint"),
        }
        conf = [f"--conf={name}={value}" for name, value in (TIMEOUTS | OTHERS).items()]
        return Driver(
            [str(SPARK / "bin/spark-submit"), "--master", self._master, *conf]
            + [there.get(word, word) for word in words],
            self.folder / "driver.log",
        )

    def rows(self) -> dict[str, object]:
        with psycopg.connect(self._url) as connection:
            try:
                return dict(connection.execute("SELECT id, data FROM objects").fetchall())
            except psycopg.errors.UndefinedTable:
                return {}

    def objects(self) -> dict[str, object]:
        return {key: event.operation for key, event in self.agent.replicate().items()}

    def wait(self, is_reached: Callable[[], bool]) -> None:
        for _ in attempts(3 * DEADLINE):
            if is_reached():
                return
            time.sleep(0.2)
        raise AssertionError(self.folder)

    def wait_equal(self) -> None:
        objects = self.objects()
        self.wait(lambda: self.rows() == objects)

    def purge(self) -> None:
        """Forget deleted objects, as time does."""
        with closing(sqlite3.connect(self.folder / "agent/oplog.db")) as db, db:
            db.execute("DELETE FROM states WHERE deleted")


class Driver:
    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, env={**environ(), "PYTHONPATH": PACKAGES}, cwd=log.parent,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.killpg(self._process.pid, number)
        self._process.wait(2 * DEADLINE)


def executors(folder: Path) -> list[int]:
    """Return the processes of Java of the executors under a folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes()
            place = os.readlink(each / "cwd")
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in words and place.startswith(str(folder)):
            found.append(int(each.name))
    return found


@pytest.mark.postgres
@pytest.mark.spark
def test_a_table_equals_the_source_whatever_is_frozen_killed_or_away(
    rounds: Rounds, tmp_path: Path
) -> None:
    for number in rounds():
        folder = tmp_path / str(number)
        (folder / "cluster").mkdir(parents=True)
        with PostgresServer() as server, cluster(folder / "cluster", workers=2) as master:
            world = World(folder / "world", server.new_database(), master)
            try:
                walk(world, folder / "cluster")
            finally:
                world.agent.kill()


def walk(world: World, place: Path) -> None:
    world.change(5000)
    driver = world.driver()
    world.wait_equal()

    # A task freezes with its executor, right before its write of an object. Others repeat the
    # batch, the object is deleted, its tombstone goes, and a copy ends.
    (world.folder / "freeze").write_text("late")
    world.send("insert", "late")
    world.wait((world.folder / "frozen").exists)
    world.wait(lambda: "a/late" in world.rows())
    world.send("delete", "late")
    world.wait(lambda: "a/late" not in world.rows())
    world.purge()
    driver.kill()
    world.change(4000)  # more than the log holds
    driver = world.driver()
    world.wait_equal()
    (world.folder / "thaw").touch()
    world.wait((world.folder / "outcome").exists)
    assert (world.folder / "outcome").read_text() == "FencedError"
    world.wait_equal()
    assert "a/late" not in world.rows()

    # Executors and drivers are killed at any moment, and the log overtakes the pipe.
    for _ in range(3):
        world.change(1500)
        for java in executors(place)[:1]:
            os.kill(java, signal.SIGKILL)
        world.change(500)
        driver.kill()
        world.change(3000)
        world.purge()
        driver = world.driver()
    world.wait_equal()

    # The agent is away.
    world.change(100)
    world.agent.kill()
    time.sleep(AWAY_SECONDS)
    world.start()
    world.change(100)
    world.wait_equal()
    driver.kill(signal.SIGTERM)
