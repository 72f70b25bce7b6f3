"""A commit log with a bound, and a receiver that is unreachable."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clock.waiting import attempts
from tests.kits.pipe.processes import PipeFolder
from tests.kits.servers.ports import free_port
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer

BOUND = 1 << 20
COUNT = 1_000
# One append may exceed the bound, and has all that waits. So they come one part after the other.
PART = 100
PARENTS = [f"{number}{'p' * 240}" for number in range(8)]  # 2 KB


class Receiver:
    """Keeps the objects of a webhook with copies. ``is_away``: it answers 503."""

    def __init__(self) -> None:
        self.is_away = True
        self.objects: dict[str, int] = {}
        self.whole = threading.Event()

    def __call__(self, request: Request) -> bytes:
        if self.is_away:
            return answer(503)
        for each in json.loads(request.body):
            if each["op"] == "end_copy":
                least = int(each["generation"])
                self.objects = {id: version for id, version in self.objects.items()
                                if version >= least}  # fmt: skip
                self.whole.set()
            elif each["op"] in ("insert", "update"):
                self.objects[each["id"]] = int(each["version"])
        return answer(200)


def ends_at(end: int) -> Callable[[Any], bool]:
    return lambda status: bool(status["log"]["end"] == end)


def operation(number: int) -> dict[str, object]:
    return {"event": "update", "type": "video", "id": f"x{number}", "parents": PARENTS}


def test_a_receiver_that_is_away_bounds_the_log_and_is_complete_when_it_returns(
    tmp_path: Path,
) -> None:
    receiver, port = Receiver(), free_port()
    with Agent(tmp_path) as agent, ScriptedServer(receiver) as server:
        pipe = PipeFolder(
            tmp_path, [agent.url],
            [
                {"name": "hook", "type": "http", "url": server.url, "on_failure": "park",
                 "copies": True, "retry_for": 0},
                {"name": "file", "type": "file", "path": "out.jsonl"},
            ],
            max_log_bytes=BOUND, listen=f"127.0.0.1:{port}",
        )  # fmt: skip
        with pipe.run() as process:
            for first in range(0, COUNT, PART):
                part = range(first, first + PART)
                assert agent.post([operation(number) for number in part]) == 200
                pipe.wait_status(ends_at(part.stop + 2))
            status = pipe.wait_status(
                lambda status: (
                    status["log"]["end"] == COUNT + 2 and status["sinks"][1]["flushed"] == COUNT + 1
                )
            )
            assert status["sinks"][0]["copy_due"]
            assert sum(each.stat().st_size for each in pipe.log.glob("*.log")) <= BOUND
            assert "hook  " in pipe.command("offset", "list")
            assert "sink hook: gave up its place" in pipe.command("status")
            process.kill()
        assert "sink hook: gave up its place" in pipe.command("status")
        with pipe.run() as process:
            process.wait_log("is parked")
            receiver.is_away = False
            for _ in attempts(DEADLINE):
                if receiver.whole.is_set():
                    break
                agent.post(operation(1))
            # The last operation may come behind the copy's end, which has removed its object.
            everything = {operation(number)["id"] for number in range(COUNT)}
            assert any(receiver.objects.keys() == everything for _ in attempts(DEADLINE))
            assert process.stop() == 0
        assert "gave up" not in pipe.command("status")
