"""The examples in Go and PHP: the same promises, so the same tests."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.agents import DEADLINE, Agent
from tests.clients.chaos import ScriptedAgent, answer
from tests.clients.following import Following
from tests.clients.restart import agent_on, free_port
from tests.conftest import ROOT
from tests.mongo.servers import go_program


class Example(NamedTuple):
    """Commands up to their flags, and what begins a flag."""

    producer: list[str]
    consumer: list[str]
    dash: str

    def produce(self, url: str, operations: list[dict[str, object]]) -> "subprocess.CompletedProcess[str]":
        lines = "".join(json.dumps(operation) + "\n" for operation in operations)
        return subprocess.run(
            [*self.producer, f"{self.dash}url={url}"],
            input=lines, capture_output=True, text=True, timeout=DEADLINE, env={**os.environ, "OPLOG_PASSWORD": "geheim"},
        )  # fmt: skip

    def consume(self, url: str, **flags: str) -> Following:
        command = [*self.consumer, *(f"{self.dash}{name}={value}" for name, value in {"url": url, **flags}.items())]
        return Following(command, env={**os.environ, "OPLOG_PASSWORD": "geheim"})


@pytest.fixture(scope="session")
def go_example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    go = go_program()
    folder = tmp_path_factory.mktemp("go")
    # It has no dependencies, so it needs no network.
    environ = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"}
    for command in (["vet", "./..."], ["build", "-o", f"{folder}/", "./..."]):
        done = subprocess.run([go, *command], cwd=ROOT / "clients" / "go", env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return Example([str(folder / "producer")], [str(folder / "consumer")], "-")


@pytest.fixture(scope="session")
def php_example() -> Example:
    php = shutil.which("php")
    assert php, "php is missing: install the package php-cli"
    folder = ROOT / "clients" / "php"
    return Example([php, str(folder / "producer.php")], [php, str(folder / "consumer.php")], "--")


@pytest.fixture(params=["go_example", "php_example"])
def example(request: pytest.FixtureRequest) -> Example:
    chosen: Example = request.getfixturevalue(request.param)
    return chosen


def videos(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"event": "insert", "type": "video", "id": f"ä/{n}", "parents": ["user/1", "user/2"]}
        for n in range(first, first + count)
    ]


def shown(first: int, count: int) -> list[str]:
    return [f"insert video/ä/{n} [user/1 user/2]" for n in range(first, first + count)]


def test_from_producer_to_consumer(tmp_path: Path, example: Example) -> None:
    with Agent(tmp_path, "--password", "geheim", "--ingest-password", "geheim") as agent:
        assert example.produce(agent.url, videos(0, 2500)).returncode == 0
        assert agent.status()["events_ingested"] == 2500
        assert example.produce(f"udp://127.0.0.1:{agent.udp_port}", videos(2500, 20)).returncode == 0
        agent.wait_status(events_ingested=2520)
        following = example.consume(agent.url, start="0", types="video")
        lines = following.take(2522)
        assert lines[0] == "reset"
        assert lines[-1] == "live"
        assert sorted(lines[1:-1]) == sorted(shown(0, 2520))
        following.kill()


def test_a_restart_and_a_kill_lose_nothing(tmp_path: Path, example: Example) -> None:
    port = free_port()
    url, state = f"http://127.0.0.1:{port}", str(tmp_path / "state")
    with agent_on(port, tmp_path) as agent:
        agent.post(videos(0, 1))
        following = example.consume(url, start="0", state=state)
        assert following.take(3) == ["reset", *shown(0, 1), "live"]
        agent.stop()
    with Agent(tmp_path) as elsewhere:  # these are there before the consumer can come back
        elsewhere.post(videos(1, 5))
    with agent_on(port, tmp_path) as agent:
        assert following.take(5) == shown(1, 5)
        following.kill()
        agent.post(videos(6, 3))
        following = example.consume(url, start="0", state=state)
        lines = following.take(1)
        while lines[-1] != shown(8, 1)[0]:
            lines += following.take(1)
        following.kill()
        assert "reset" not in lines[1:]
        assert [line for line in lines if line != "live"][-3:] == shown(6, 3)


def test_a_consumer_with_a_count_ends_and_goes_on_behind_its_last_operation(tmp_path: Path, example: Example) -> None:
    with Agent(tmp_path, "--password", "geheim") as agent:
        following = example.consume(agent.url, start="0", state=str(tmp_path / "state"), count="2")
        assert following.take(2) == ["reset", "live"]
        agent.post(videos(0, 5))
        assert following.take(2) == shown(0, 2)
        assert following.rest() == (0, "")
        following = example.consume(agent.url, state=str(tmp_path / "state"), count="3")
        assert following.take(3) == shown(2, 3)
        assert following.rest() == (0, "")


@pytest.mark.parametrize("status", ["503 Service Unavailable", "408 Request Timeout", "429 Too Many Requests"])
def test_a_producer_tries_again_with_the_same_batch(example: Example, status: str) -> None:
    later = answer(status, '{"detail":"not now"}', "Retry-After: 0")
    with ScriptedAgent([later, answer("200 OK", "%COUNT%")]) as server:
        done = example.produce(server.url, videos(0, 2))
        assert done.returncode == 0
        assert "trying again" in done.stderr
        assert len(server.bodies) == 2
        assert server.bodies[0] == server.bodies[1]


def test_a_wrong_password_is_told(tmp_path: Path, example: Example) -> None:
    with Agent(tmp_path, "--password", "another", "--ingest-password", "another") as agent:
        done = example.produce(agent.url, videos(0, 1))
        assert done.returncode != 0
        assert "401" in done.stderr
        command = [*example.consumer, f"{example.dash}url={agent.url}"]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        assert refused.returncode == 1
        assert "401" in refused.stderr
