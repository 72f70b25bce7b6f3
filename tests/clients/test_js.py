"""The JavaScript client: its own tests with node's runner, and a follower that outlives its agent."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.agents import DEADLINE, Agent
from tests.clients.chaos import ChaosProxy
from tests.clients.following import Following
from tests.clients.restart import agent_on, free_port
from tests.conftest import ROOT

JS = ROOT / "clients" / "js"

_FOLLOW = """
import { Consumer, fileState } from "./node.js";
const [url, path] = process.argv.slice(1);
const consumer = new Consumer(url, { start: "0", state: fileState(path), backoff: [0.01, 0.05], saveInterval: 0.001 });
for await (const event of consumer) {
  console.log(event.type ? `${event.event} ${event.type}/${event.id}` : event.event);
  if (event.id !== "never") consumer.ack(event);
}
"""


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    assert found, "node is missing: install the package nodejs (20 or newer)"
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    assert int(version.lstrip("v").split(".")[0]) >= 20, f"node is {version.strip()}, 20 or newer is needed"
    return found


def test_its_own_tests(tmp_path: Path, node: str) -> None:
    with (
        Agent(tmp_path, "--password", "gehéim") as agent,
        ChaosProxy(agent.port, seed=5, most_bytes=40_000) as proxy,
    ):
        # Behind an empty log a stream goes on with states, which tells less than the log.
        agent.post({"event": "insert", "type": "first", "id": "1"})
        environ = {
            **os.environ,
            "OPLOG_TEST_URL": agent.url,
            "OPLOG_TEST_UDP_PORT": str(agent.udp_port),
            "OPLOG_TEST_CHAOS_URL": proxy.url,
            "OPLOG_TEST_PASSWORD": "gehéim",
        }
        files = sorted(map(str, (JS / "test").glob("*.test.js")))
        done = subprocess.run(
            [node, "--test", "--test-timeout", str(int(DEADLINE * 1000)), *files],
            env=environ, capture_output=True, text=True, timeout=2 * DEADLINE,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "skipped 0" in done.stdout
        assert proxy.cuts >= 5


def test_a_restart_and_a_kill_lose_nothing(tmp_path: Path, node: str) -> None:
    port = free_port()
    state = tmp_path / "state"
    command = [node, "--input-type=module", "-e", _FOLLOW, f"http://127.0.0.1:{port}", str(state)]
    with agent_on(port, tmp_path) as agent:
        agent.post({"event": "insert", "type": "video", "id": "a"})
        first = Following(command, cwd=JS)
        assert first.take(3) == ["reset", "insert video/a", "live"]
        agent.stop()
    with Agent(tmp_path) as elsewhere:  # these are there before the consumer can come back
        for id_ in ("b", "never", "c"):
            elsewhere.post({"event": "insert", "type": "video", "id": id_})
    with agent_on(port, tmp_path):
        assert first.take(3) == ["insert video/b", "insert video/never", "insert video/c"]
        first.kill()
        second = Following(command, cwd=JS)
        came = second.take(2)
        while came[-2:] != ["insert video/never", "insert video/c"]:  # more where the last save was earlier
            came += second.take(1)
        second.kill()
