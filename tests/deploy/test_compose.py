"""compose.yaml fits its schema, and its proxy and examples work with two agents."""

import contextlib
import http.client
import json
import os
import pwd
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, Answer, Event
from tests.kits.deploy.files import DEPLOY, fits, must_pass, program, read_yaml
from tests.kits.paths import ROOT
from tests.kits.sse.stream import Stream

COMPOSE = DEPLOY / "compose.yaml"
JSON = {"Content-Type": "application/json"}
SCHEMA = "compose-spec"


def test_the_schema_of_compose_accepts_the_file() -> None:
    assert fits(SCHEMA, COMPOSE)


def test_the_schema_of_compose_refuses_a_member_that_is_misspelt(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        COMPOSE.read_text().replace("stop_grace_period", "stop_period")
    )
    assert not fits(SCHEMA, tmp_path / "compose.yaml")


def test_the_files_volumes_and_networks_of_the_services_exist() -> None:
    compose = read_yaml(COMPOSE)
    services = compose["services"]
    stages = (DEPLOY / "Containerfile").read_text()
    for name, service in services.items():
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
            assert f" AS {service['build']['target']}\n" in stages
        assert set(service.get("depends_on", ())) <= services.keys()
        assert set(service["networks"]) <= compose["networks"].keys()
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (COMPOSE.parent / source).is_file(), volume
        for published in service.get("ports", ()):
            assert published.startswith("127.0.0.1:")  # nothing has a password
        if name != "mongo":
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
    proxied = (DEPLOY / "compose/nginx.conf").read_text()
    assert all(f"server {name}:8042;" in proxied for name in ("agent-a", "agent-b"))
    assert compose["networks"]["store"] == {"internal": True}
    assert list(services["proxy"]["networks"]) == ["public"]


@pytest.mark.parametrize(
    ("has_set", "is_primary", "healthy"),
    [(False, False, False), (True, False, False), (True, True, True)],
)
@pytest.mark.node
def test_mongodb_initiates_a_missing_set_and_is_healthy_as_its_primary(
    has_set: bool, is_primary: bool, healthy: bool
) -> None:
    services = read_yaml(COMPOSE)["services"]
    shell = f"""
        const begun = [];
        const rs = {{
            status() {{
                if (!{json.dumps(has_set)}) throw new Error("no replset config has been received");
            }},
            initiate(set) {{ begun.push(set); }},
        }};
        const db = {{ hello: () => ({{ isWritablePrimary: {json.dumps(is_primary)} }}) }};
        function quit(code) {{ console.log(JSON.stringify({{ code, begun }})); }}
    """
    script = services["mongo"]["healthcheck"]["test"][-1]
    said = json.loads(must_pass(program("node"), "-e", shell + script).stdout)
    name = services["mongo"]["command"][2]
    begun = {"_id": name, "members": [{"_id": 0, "host": "mongo:27017"}]}
    assert said == {"code": 0 if healthy else 1, "begun": [] if has_set else [begun]}
    assert (
        f"--mongo-url=mongodb://mongo:27017/oplog?replicaSet={name}"
        in services["agent-a"]["command"]
    )


class Proxy:
    """Runs nginx with the configuration of compose, in front of these agents."""

    def __init__(self, folder: Path, *agents: Agent) -> None:
        with contextlib.ExitStack() as stack:
            # Bound here, so that no other process gets the port.
            # nginx inherits the socket, as if it upgraded itself.
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            self.port = listening.getsockname()[1]
            self.url = f"http://127.0.0.1:{self.port}"
            self.log = folder / "access.log"
            text = (DEPLOY / "compose/nginx.conf").read_text().replace(" /tmp/", f" {folder}/")
            changes = {
                "listen 8080;": f"listen 127.0.0.1:{self.port};",
                "/dev/stdout": str(self.log),
            }
            changes |= {"worker_processes auto;": "worker_processes 1;"}
            for name, agent in zip(("agent-a", "agent-b"), agents, strict=True):
                changes[f"server {name}:8042;"] = f"server 127.0.0.1:{agent.port};"
            for old, new in changes.items():
                assert text.count(old) == 1, old
                text = text.replace(old, new)
            (folder / "nginx.conf").write_text(text)
            user = f"user {pwd.getpwuid(0).pw_name};" if os.getuid() == 0 else ""
            self._process = subprocess.Popen(
                [
                    program("nginx"),
                    "-e",
                    "stderr",
                    "-c",
                    folder / "nginx.conf",
                    "-g",
                    f"daemon off; {user}",
                ],
                pass_fds=[listening.fileno()],
                env={**os.environ, "NGINX": f"{listening.fileno()};"},
                stderr=subprocess.PIPE,
                text=True,
            )

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, {}, response.read())

    def stop(self) -> None:
        self._process.terminate()
        _, said = self._process.communicate(timeout=DEADLINE)
        assert self._process.returncode == 0, said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self.stop()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[tuple[Agent, Agent]]:
    """Start two agents that share a store."""
    with Agent(tmp_path, "--heartbeat", "25s") as a, Agent(tmp_path, "--heartbeat", "25s") as b:
        yield a, b


@pytest.fixture
def proxy(tmp_path: Path, agents: tuple[Agent, Agent]) -> Iterator[Proxy]:
    with Proxy(tmp_path, *agents) as proxy:
        yield proxy


def _operation(number: int) -> dict[str, str]:
    return {"event": "insert", "type": "video", "id": str(number)}


@pytest.mark.nginx
def test_events_pass_the_proxy_at_once_and_a_stop_of_an_agent_loses_none(
    agents: tuple[Agent, Agent], proxy: Proxy
) -> None:
    received: list[Event] = []
    with Stream(proxy.url, None, {"token": "mine"}) as stream:
        assert stream.header("Content-Type") == "text/event-stream; charset=utf-8"
        for number in range(10):
            assert agents[number % 2].post(_operation(number)) == 204
            received += stream.take(1)
        assert not stream.heartbeats  # a buffer would be flushed by a heartbeat only
        (busy,) = (agent for agent in agents if agent.status()["clients"])
        assert busy.stop() == 0
        received += stream.rest()
    (other,) = (agent for agent in agents if agent is not busy)
    with Stream(proxy.url, received[-1].id) as stream:
        answer = other.request("POST", "/", [_operation(number) for number in range(10, 20)])
        assert answer.status == 200
        received += stream.take(10)
    assert [event.operation["id"] for event in received] == [str(number) for number in range(20)]


@pytest.mark.nginx
def test_an_agent_sees_the_address_of_the_client_and_the_proxys_log_holds_no_query(
    agents: tuple[Agent, Agent], proxy: Proxy
) -> None:
    refused = proxy.request("GET", "/ops?token=secret", Accept="application/json")
    assert refused.status == 406
    assert f"{proxy.url}/ops" in refused.json["detail"]
    assert proxy.request("GET", "/metrics").status == 404
    large = json.dumps(
        [{**_operation(number), "id": f"{number:0>1000}"} for number in range(1000)]
    ).encode()
    assert proxy.request("POST", "/", large, **JSON).json == {"ingested": 1000}
    assert proxy.request("POST", "/", b"{", **JSON).json["status"] == 400
    proxy.stop()
    logged = proxy.log.read_text()
    assert "secret" not in logged
    assert '"GET /ops" 406' in logged.splitlines()[0]
    assert len(logged.splitlines()) == 4


@pytest.mark.nginx
def test_the_examples_follow_each_other_through_the_proxy(
    agents: tuple[Agent, Agent], proxy: Proxy, tmp_path: Path
) -> None:
    environ = {**os.environ, "OPLOG_URL": proxy.url, "INTERVAL": "0.01"}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "clients/python")))
    examples = DEPLOY / "compose"
    command = [sys.executable, "-W", "error"]
    with (
        subprocess.Popen([*command, examples / "producer.py"], env=environ) as producer,
        subprocess.Popen(
            [*command, examples / "consumer.py"],
            env=environ,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        ) as consumer,
    ):
        patience = threading.Timer(DEADLINE, consumer.kill)
        patience.start()
        assert consumer.stdout is not None
        said: list[str] = []
        while not said or (said[-1] and not said[-1].startswith("update")):
            said.append(consumer.stdout.readline())
        producer.terminate()
        consumer.terminate()
        assert (producer.wait(DEADLINE), consumer.wait()) == (0, 0)
        patience.cancel()
    assert said[0] == "forget everything: a copy of all videos follows\n"
    assert "the copy is complete\n" in said
    assert {line.split()[2] for line in said if line.startswith(("insert", "update"))} == {
        "user/ada"
    }
    assert (tmp_path / "videos.state").read_text()
