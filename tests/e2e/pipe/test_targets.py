"""An index in OpenSearch and a table in PostgreSQL stay equal to the source, whatever happens.

Kills; a gap in which objects were deleted; a lost folder; compaction.
"""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.models.properties import chance, rounds
from tests.kits.pipe.processes import PipeFolder, PipeProcess
from tests.kits.servers.opensearch import OpenSearchServer
from tests.kits.servers.ports import free_port
from tests.kits.servers.postgres import PostgresServer

KILLS = rounds(8, 20)
_OBJECTS = 150


class Source:
    """An agent at one address, and a thread that changes its objects while ``changing``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._random = chance(7)
        self.agent = self._start("first")

    def change(self, count: int) -> None:
        """Send random operations on few objects, in one request."""
        body = [
            {
                "event": self._random.choices(("insert", "update", "delete"), (3, 5, 2))[0],
                "type": self._random.choice(("video", "playlist")),
                "id": f"x{self._random.randrange(_OBJECTS)}",
                "parents": [f"p{self._random.randrange(1000)}"],
            }
            for _ in range(count)
        ]
        assert self.agent.post(body) == 200

    @contextmanager
    def changing(self) -> Iterator[None]:
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(0.05):
                self.change(3)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def replace_store(self) -> None:
        """Replace the agent's store by one that has fewer objects, as after a restored backup."""
        assert self.agent.stop() == 0
        self.agent = self._start("second")

    def objects(self) -> dict[str, Any]:
        """Return the live objects by their keys: operations without their events."""
        return {key: event.operation for key, event in self.agent.replicate().items()}

    def _start(self, name: str) -> Agent:
        folder = self._folder / name
        folder.mkdir()
        return agent_on(self._port, folder)


class Targets:
    """A table and an index for both types."""

    def __init__(self, postgres: PostgresServer, opensearch: str, name: str) -> None:
        self._database = postgres.new_database()
        self._opensearch = opensearch
        self._index = name

    def sinks(self) -> list[dict[str, Any]]:
        table = {"name": "table", "type": "postgres", "url": self._database, "table": "objects"}
        index = {
            "name": "index", "type": "elasticsearch",
            "urls": [self._opensearch], "index": self._index,
        }  # fmt: skip
        common = {"id": "{namespace}/{id}", "batch": {"time": "20ms", "messages": 100}}
        return [{**table, **common}, {**index, **common}]

    def table(self) -> dict[str, Any]:
        with psycopg.connect(self._database) as connection:
            return dict(connection.execute("SELECT id, data FROM objects").fetchall())

    def index(self) -> dict[str, Any]:
        with httpx.Client(base_url=self._opensearch, timeout=DEADLINE) as client:
            client.post(f"/{self._index}/_refresh").raise_for_status()
            found = client.post(f"/{self._index}/_search", json={"size": 10_000}).json()
        hits = {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}
        for document in hits.values():
            del document["oplog"]
        return hits


def wait_caught_up(pipe: PipeFolder, agent: Agent) -> None:
    """Wait until the pipe has the newest operation, and the sinks have acknowledged everything.

    The agent's `/status` names its newest operation; the pipe's status the source's position.
    """
    newest = agent.status()["store"]["newest_id"]

    def is_reached(status: Any) -> bool:
        return status["sources"][0]["position"] == newest and all(
            sink["flushed"] == status["log"]["end"] - 1 for sink in status["sinks"]
        )

    # A backlog is written one message at a time, which takes long on a busy machine.
    pipe.wait_status(is_reached, 5 * DEADLINE)


def test_table_and_index_equal_the_source_after_kills_a_gap_a_lost_folder_and_compaction(
    postgres: PostgresServer, opensearch: OpenSearchServer, tmp_path: Path
) -> None:
    source = Source(tmp_path)
    targets = Targets(postgres, opensearch.url, "objects")
    pipe = PipeFolder(
        tmp_path, [source.agent.url], targets.sinks(), max_segment_bytes="32 KB", name="p"
    )
    moments = chance(11)

    def check() -> None:
        wait_caught_up(pipe, source.agent)
        objects = source.objects()
        assert targets.table() == objects
        assert targets.index() == objects

    source.change(1000)
    with source.changing():
        for _ in range(KILLS):
            with pipe.run() as process:
                process.wait_log("oplog-pipe")
                kill_after(process, moments.uniform(0.0, 0.6))
    with pipe.run() as process:
        check()
        pipe.wait_status(lambda status: status["log"]["compacted"] > 0)
        assert process.stop() == 0

    source.replace_store()
    source.change(300)
    with pipe.run() as process:
        check()
        with source.changing():
            kill_after(process, 0.3)
    shutil.rmtree(pipe.log)
    source.change(100)
    with pipe.run() as process:
        check()
        assert process.stop() == 0
    source.agent.kill()


def kill_after(process: PipeProcess, seconds: float) -> None:
    """Kill at a random moment: the time decides nothing that is asserted."""
    time.sleep(seconds)
    process.kill()
