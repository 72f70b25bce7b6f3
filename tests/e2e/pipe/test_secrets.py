"""Contents of messages and the address of a webhook are in no log, no status and no reason."""

import json
import stat
import urllib.request
from pathlib import Path

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.topics import Topic
from tests.kits.pipe.processes import PipeFolder
from tests.kits.pipe.targets import SECRET
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer

FAIL = """\
def fail(message):
    if "bad" in message.data["payload"]:
        raise ValueError(message.data["payload"])
    return message
"""


def test_what_a_receiver_and_a_transform_say_stays_out_of_everything(
    agent: Agent, tmp_path: Path
) -> None:
    def choose(asked: Request) -> bytes:
        if b"bad" in asked.body:
            return answer(422, b'{"detail": "cannot take ' + SECRET.encode() + b'"}')
        return answer(503, asked.body) if b"last" in asked.body else answer(204, b"")

    topic = Topic(agent, "shop/orders").create()
    (tmp_path / "shape.py").write_text(FAIL)
    with ScriptedServer(choose) as server:
        (tmp_path / "hook").write_text(f"{server.url}/services/{SECRET}?token={SECRET}\n")
        sinks = [
            {"name": "hook", "type": "http", "url_file": "hook", "dead_letter": "hook.dead"},
            {
                "name": "own", "type": "file", "path": "out.jsonl", "dead_letter": "own.dead",
                "transforms": "shape:fail",
            },
        ]  # fmt: skip
        source = {"agents": agent.url, "log": "shop/orders"}
        pipe = PipeFolder(tmp_path, [], sinks, sources=[source], listen="127.0.0.1:0")
        with pipe.run() as process:
            topic.publish(f"good {SECRET}", f"bad {SECRET}", f"good {SECRET}")
            pipe.wait_status(lambda status: [each["flushed"] for each in status["sinks"]] == [2, 2])
            topic.publish(f"last {SECRET}")
            process.wait_log("Service Unavailable (HTTP 503)")
            url = process.wait_log("status at").split()[-1]
            with urllib.request.urlopen(url, timeout=DEADLINE) as response:
                status = response.read().decode()
            process.kill()
            log = process.text()
    reasons = [
        json.loads((tmp_path / f"{name}.dead").read_text())["error"] for name in ("hook", "own")
    ]
    assert reasons[0].startswith(f"{server.url}/***: Unprocessable ")
    assert reasons[0].endswith(" (HTTP 422)")
    assert reasons[1].endswith("ValueError in shape.py, line 3")
    told = pipe.command("status") + pipe.command("validate", "--offline", "--show")
    for text in (log, status, told, *reasons):
        assert SECRET not in text
    assert f"{server.url}/***" in status
    made = [tmp_path / "pipe", *(tmp_path / "pipe").rglob("*"), *tmp_path.glob("*.dead")]
    assert {stat.S_IMODE(each.stat().st_mode) & 0o077 for each in made} == {0}
