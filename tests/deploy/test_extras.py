"""The commands without the libraries of extras that are not installed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, NewAgent
from tests.kits.paths import ROOT

# None in the place of a module: it cannot be imported.
WITHOUT = "import sys; sys.modules.update(dict.fromkeys(['bson', 'fastavro', 'gridfs', 'pymongo']))"
AGENT = f"{WITHOUT}; from oplogd.__main__ import main; main()"
SYNC = f"{WITHOUT}; from oplog_sync.cli import main; main()"
TOPIC = "/v1/namespaces/n/topics/t"


class BareAgent(NewAgent):
    """An agent that was installed without extras."""

    program = ("-c", AGENT)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareAgent]:
    with BareAgent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def ended(program: str, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_an_agent_without_extras_takes_sends_and_shows_everything_else(agent: BareAgent) -> None:
    assert agent.post({"event": "insert", "type": "video", "id": "x1"}) == 204
    assert agent.request("PUT", TOPIC).status == 200
    assert agent.request("POST", f"{TOPIC}/publish", {"messages": ["one"]}).status == 200
    (message,) = agent.request("POST", f"{TOPIC}/poll").json
    assert message["payload"] == "one"
    assert agent.status()["status"] == "OK"
    for path in ("/docs", "/metrics", "/openapi.json", "/v1/schemas/PollRequest"):
        assert agent.request("GET", path).status == 200, path


@pytest.mark.parametrize("endpoint", ["publish", "poll"])
def test_an_agent_without_fastavro_says_so_to_an_avro_request(
    agent: BareAgent, endpoint: str
) -> None:
    avro = {"Content-Type": "avro/binary"}
    answer = agent.request("POST", f"{TOPIC}/{endpoint}", b"\2\0", avro)
    assert answer.status == 415
    assert answer.json["detail"] == "this agent was installed without Avro; use application/json"


def test_an_agent_without_fastavro_does_not_offer_it_for_an_unknown_type(agent: BareAgent) -> None:
    answer = agent.request("POST", f"{TOPIC}/publish", b"x", {"Content-Type": "text/plain"})
    detail = "Content-Type text/plain is not understood; use application/json"
    assert (answer.status, answer.json["detail"]) == (415, detail)


@pytest.mark.parametrize("source", ["--mongo-url", "OPLOGD_MONGO_URL"])
def test_an_agent_without_pymongo_says_how_to_install_it(source: str) -> None:
    url = "mongodb://user:secret@localhost/oplog"
    given = () if source.isupper() else (source, url, "--new-epoch")
    done = ended(AGENT, *given, **({source: url} if source.isupper() else {}))
    assert done.stderr == (
        f"oplogd: {source}: PyMongo is not installed;"
        " in the checkout of oplog, run: pip install -c constraints.txt '.[mongo]'\n"
    )
    assert (done.returncode, done.stdout) == (2, "")


def test_oplog_sync_without_pymongo_says_how_to_install_it(tmp_path: Path) -> None:
    done = ended(SYNC, "--mongo-url", "mongodb://user:secret@localhost/oplog", str(tmp_path))
    assert done.stderr == (
        "oplog-sync: MongoDB needs PyMongo;"
        " in the checkout of oplog, run: pip install -c constraints.txt '.[sync]'\n"
    )
    assert (done.returncode, done.stdout) == (2, "")
