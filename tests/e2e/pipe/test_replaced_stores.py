"""A store that is replaced or restored in the middle of a copy, behind the same address."""

import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.pipe.test_targets import wait_caught_up
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.pipe.processes import PipeFolder
from tests.kits.proxies.proxy import Proxy
from tests.kits.servers.postgres import PostgresServer

OBJECTS = 3_000
# A copy of the objects has more bytes than this.
HELD_AT = 200_000


class HoldingProxy(Proxy):
    """Passes so many bytes of each answer on, and then nothing until the connection ends."""

    def __init__(self, target: int, bytes_: int) -> None:
        self.bytes: int | None = bytes_
        self._ended = threading.Event()
        super().__init__(target)

    def disconnect(self) -> None:
        super().disconnect()
        self._ended.set()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        left = self.bytes
        while left is not None and source in self._open:
            if not left:
                self._ended.wait(DEADLINE)
                return
            piece = source.recv(left)
            if not piece:
                break
            target.sendall(piece)
            left -= len(piece)
        super()._pass_on(source, target)


def fill(agent: Agent, prefix: str, count: int, event: str = "insert") -> None:
    """Send operations in requests of 100: their states have many times."""
    for first in range(0, count, 100):
        numbers = range(first, min(count, first + 100))
        body = [{"event": event, "type": "video", "id": f"{prefix}{each}"} for each in numbers]
        assert agent.post(body) == 200


def back_up(store: Path, copy: Path) -> None:
    with closing(sqlite3.connect(store)) as one, closing(sqlite3.connect(copy)) as other:
        one.backup(other)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_target_equals_the_store_that_took_the_place_of_another_in_the_middle_of_a_copy(
    postgres: PostgresServer, tmp_path: Path, is_restored: bool
) -> None:
    """Times do not tell the two stores apart: each has changes before and behind the break."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    url = postgres.new_database()
    sink = {
        "name": "table", "type": "postgres", "url": url, "table": "objects",
        "id": "{namespace}/{id}",
    }  # fmt: skip
    with Agent(first) as agent, HoldingProxy(agent.port, HELD_AT) as proxy:
        if is_restored:
            fill(agent, "x", OBJECTS)
            back_up(first / "oplog.db", second / "oplog.db")
            fill(agent, "x", 100, "update")  # they leave the part that the copy brings first
        else:
            with Agent(second) as other:
                fill(other, "older", 500)
                fill(agent, "x", OBJECTS)
                fill(other, "newer", 100)
        pipe = PipeFolder(tmp_path, [f"http://127.0.0.1:{proxy.port}"], [sink], name="p")
        with pipe.run() as process:
            status = pipe.wait_status(lambda status: status["log"]["end"] > 1000)
            assert status["sources"][0]["phase"] == "copy"
            identity = agent.status()["store"]["identity"]
            proxy.disconnect()
            agent.kill()
            with Agent(second) as other:
                assert (other.status()["store"]["identity"] == identity) == is_restored
                proxy.target, proxy.bytes = other.port, None
                proxy.mend()
                process.wait_log("copying all objects again")
                wait_caught_up(pipe, other)
                objects = {key: event.operation for key, event in other.replicate().items()}
                assert len(objects) == (OBJECTS if is_restored else 600)
                assert table(url) == objects
            assert process.stop() == 0


def table(url: str) -> dict[str, Any]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT id, data FROM objects").fetchall())
