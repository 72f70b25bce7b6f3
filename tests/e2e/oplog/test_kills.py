"""Acknowledged operations survive kills of the agent."""

import http.client
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.kits.agents.agent import DEADLINE, Agent, Event
from tests.kits.agents.streams import ByteStream, offset_of, offsets, operation
from tests.kits.models import properties
from tests.kits.models.properties import rounds

KILLS = rounds(8, 20)


class Load:
    """Producers that post operations and batches until the agent is gone, without retries."""

    def __init__(self, agent: Agent, ids: Iterator[int]) -> None:
        self.acknowledged: list[str] = []
        # The operations of every batch, answered or not.
        self.batches: list[list[str]] = []
        self._port = agent.port
        self._ids = ids
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._produce, args=(size,)) for size in (1, 1, 1, 1, 25, 25)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= count, DEADLINE)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()

    def _produce(self, size: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE)
        try:
            while True:
                ids = [f"n{next(self._ids)}" for _ in range(size)]
                operations = [operation("insert", id_) for id_ in ids]
                if size > 1:
                    self.batches.append(ids)
                body = json.dumps(operations if size > 1 else operations[0])
                connection.request("POST", "/", body, {"Content-Type": "application/json"})
                with connection.getresponse() as response:
                    response.read()
                assert response.status == (200 if size > 1 else 204)
                with self._changed:
                    self.acknowledged += ids
                    self._changed.notify()
        except (OSError, http.client.HTTPException):
            pass  # killed
        finally:
            connection.close()


def test_acknowledged_operations_survive_kills_under_load_exactly_once(tmp_path: Path) -> None:
    ids = itertools.count()
    chance = properties.chance(9)
    acknowledged: list[str] = []
    batches: list[list[str]] = []
    log: list[Event] = []
    for _ in range(KILLS):
        with Agent(tmp_path) as agent:
            stream = ByteStream(agent, log[-1].id if log else None)
            consumer = threading.Thread(target=lambda stream=stream: log.extend(stream.blocks()))
            consumer.start()
            load = Load(agent, ids)
            load.wait(chance.randrange(1, 500))
            agent.process.kill()
            load.join()
            consumer.join(DEADLINE)
            stream.close()
        acknowledged += load.acknowledged
        batches += load.batches
    with Agent(tmp_path) as agent:
        status = agent.status()["store"]
        with ByteStream(agent, log[-1].id) as rest:
            if log[-1].id != status["newest_id"]:
                log += rest.until_offset(offset_of(status["newest_id"]))
    # The consumer got exactly the log: dense, and no kill took anything back.
    assert offsets(log) == list(range(1, len(log) + 1))
    assert status["ops"] == len(log)
    stored = [event.operation["id"] for event in log]
    assert len(set(stored)) == len(stored)
    assert set(acknowledged) <= set(stored)
    assert len(acknowledged) == len(set(acknowledged))
    for batch in batches:
        assert len(set(batch) & set(stored)) in (0, len(batch))
