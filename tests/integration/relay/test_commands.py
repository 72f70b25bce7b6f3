"""oplog-relay as people run it: beside an agent, with signals, a terminal and a scraper."""

import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from oplog_relay.cli import main
from oplog_relay.db.schema import ddl
from oplog_relay.outbox import OutboxWriter
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.documents import pages
from tests.kits.mongo.agents import wait_for
from tests.kits.processes.forked import Forked
from tests.kits.proxies.http import Fault, HttpProxy
from tests.kits.relay.processes import BEGINS, ENDS, RelayProcess
from tests.kits.servers.ports import free_port
from tests.kits.servers.postgres import PostgresServer
from tests.kits.servers.scripted import ScriptedServer

PAGE = pages.OPERATE_RELAY.read_text()
Captured = pytest.CaptureFixture[str]
PASSWORD = "pw-%s-of-the-test"
AUTH = {"Authorization": f"Basic {b64encode(f':{PASSWORD}'.encode()).decode()}"}
# Nobody loses the lead because the machine is busy.
LIMITS = {
    "poll": "50ms", "meter": "100ms", "io_error_backoff": "50ms", "heartbeat": "60s",
    "session": "120s",
}  # fmt: skip


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent"), "--ingest-password", PASSWORD) as agent:
        created = agent.request("PUT", "/v1/namespaces/default/topics/pump", {}, AUTH)
        assert created.status == 200
        yield agent


class Place:
    """An outbox in SQLite, with the settings of a relay on it."""

    def __init__(self, folder: Path, name: str, agents: list[str]) -> None:
        self.name = name
        self.agents = agents
        self.file = folder / "app.db"
        self.path = folder / "relay.yaml"
        with closing(sqlite3.connect(self.file)) as database:
            database.execute(ddl("sqlite"))
        self.write()

    def write(self, **changes: object) -> str:
        """Write the settings with these members, and return their path."""
        settings = {
            "name": self.name,
            "agents": {"urls": self.agents, "password": PASSWORD},
            "database": {"url": f"sqlite:///{self.file}"},
            "limits": LIMITS,
        }
        self.path.write_text(json.dumps({**settings, **changes}))
        return str(self.path)

    def insert(self, *topics: str) -> None:
        """Insert a row for each topic, the key of which is the topic."""
        with closing(sqlite3.connect(self.file)) as database:
            for topic in topics:
                OutboxWriter().message(database, topic, key=topic, value="a secret value")
            database.commit()

    def wait_rows(self, count: int) -> None:
        with closing(sqlite3.connect(self.file)) as database:
            wait_for(
                f"{count} rows",
                lambda: database.execute("SELECT count(*) FROM outbox").fetchone() == (count,),
            )

    def shown(self, *beginnings: str) -> list[str]:
        """Return lines of the page about the commands, with the names of this place."""
        text = PAGE
        for old, new in (
            ("sqlite:///app.db", f"sqlite:///{self.file}"),
            ("http://localhost:8042", self.agents[0]),
            ("lease orders", f"lease {self.name}"),
        ):
            text = text.replace(old, new)
        return [line for line in text.splitlines() if line.startswith(beginnings)]

    def run(self, *flags: str) -> RelayProcess:
        return RelayProcess(self.path, *flags)


@pytest.fixture
def place(agent: Agent, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    name = re.sub(r"\W", "-", request.node.name)[:200]
    return Place(tmp_path, name, [agent.url])


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def values(text: str) -> dict[str, float]:
    """Return the samples without labels besides the lease."""
    found = re.findall(r'^oplog_relay_(\w+)\{lease="[^"]*"\} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_a_relay_from_its_start_to_its_stop(place: Place, capsys: Captured) -> None:
    place.insert("pump", "missing")
    settings = str(place.path)
    with place.run("--metrics-listen", "127.0.0.1:0") as relay:
        begun = relay.wait_log("oplog-relay ")
        assert begun.partition(f": relay {place.name}, ")[2] == (
            f"agents {place.agents[0]}, database sqlite:///{place.file}, table outbox\n"
        )
        address = relay.wait_log("metrics at").split()[-1]
        relay.wait_log("blocks its key")
        # The progress; the metrics tell the same.
        relay.wait_log("0 in flight, backlog 1,")
        place.wait_rows(1)

        status, text = get(address)
        assert status == 200
        shown = values(text)
        assert {name: shown[name] for name in (
            "is_leader", "term", "rows_relayed_total", "blocked_keys", "in_flight",
        )} == {
            "is_leader": 1, "term": 1, "rows_relayed_total": 1, "blocked_keys": 1, "in_flight": 0,
        }  # fmt: skip
        assert shown["backlog_rows"] == 1
        base = address.removesuffix("/metrics")
        assert get(f"{base}/live") == (200, "live\n")
        assert get(f"{base}/")[0] == 404

        def blocked() -> bool:
            code = main(["status", "-f", settings, "--json"])
            found = json.loads(capsys.readouterr().out)
            return bool((found["leader"] or {}).get("blocked_keys")) and code == 1

        wait_for("the note", blocked)
        assert main(["status", "-f", settings]) == 1
        told = capsys.readouterr().out.splitlines()
        host = socket.gethostname()
        assert told[0].startswith(f"{place.name}: led by {host} (process {relay.pid}), term 1, ")
        assert told[2] == f"leader: moves table outbox of sqlite:///{place.file}"
        assert "  row 2, topic missing, key missing: there is no topic default/missing" in told[4]
        assert len(told) == 6

        assert main(["skip", "2", "-f", settings, "--yes"]) == 0
        assert "a secret value" not in capsys.readouterr().out
        place.insert("pump")
        place.wait_rows(0)
        assert relay.stop() == 0
        log = relay.text()
    assert [log.count(words) for words in (BEGINS, ENDS, "stopped: nothing is in flight")] == [
        1
    ] * 3
    assert "WARNING" in log
    assert PASSWORD not in log
    assert "Traceback" not in log
    assert main(["status", "-f", settings]) == 1
    assert capsys.readouterr().out.startswith(
        f"{place.name}: no relay leads; the last leader has handed over term 1\n"
    )


def test_a_leader_without_blocked_keys_is_well_and_says_nothing_while_idle(
    place: Place, capsys: Captured
) -> None:
    with place.run("--log-format", "json") as relay:
        line = json.loads(relay.wait_log(BEGINS))
        assert line["level"] == "INFO"

        def noted() -> bool:
            assert main(["status", "-f", str(place.path), "--json"]) == 0
            leader = json.loads(capsys.readouterr().out)["leader"] or {}
            return bool(leader.get("backlog") == 0)

        wait_for("a reading in the note", noted)
        assert relay.process.poll() is None
        relay.process.send_signal(signal.SIGINT)
        assert relay.wait() == 0
        told = [json.loads(line)["message"].split()[0] for line in relay.log]
    assert told == ["oplog-relay", "leading", "stopping:", "leading", "stopped:"]


def test_a_stop_that_cannot_finish_ends_with_1(place: Place, agent: Agent) -> None:
    place.insert("pump")
    with HttpProxy(agent.port) as proxy:
        place.agents = [proxy.url]
        place.write(limits={**LIMITS, "drain": "100ms"})
        with proxy.disturbed(Fault.HOLD) as held, place.run() as relay:
            proxy.wait_reached(held)
            assert relay.stop() == 1
    assert "stopped: 1 row in flight will be sent again" in relay.text()


def test_a_second_signal_ends_a_relay_at_once(place: Place, agent: Agent) -> None:
    place.insert("pump")
    with HttpProxy(agent.port) as proxy:
        place.agents = [proxy.url]
        place.write(limits={**LIMITS, "drain": "1h"})
        with proxy.disturbed(Fault.HOLD) as held, place.run() as relay:
            proxy.wait_reached(held)
            relay.process.send_signal(signal.SIGTERM)
            relay.wait_log("stopping: SIGTERM")
            assert relay.stop() == 1
    assert "stopped by a second signal" in relay.text()


def test_validate_tells_that_all_is_well_and_takes_no_lease(
    place: Place, agent: Agent, capsys: Captured
) -> None:
    place.insert("pump")
    path = f"/v1/leases/{place.name}"
    for flags in ([], ["--offline"]):
        assert main(["validate", "-f", str(place.path), *flags]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert PASSWORD not in out
        assert out.startswith(f"name: {place.name}\n")
        comments = [line for line in out.splitlines() if line.startswith("#")]
        assert comments == ([] if flags else place.shown("# database", "# agent"))
    assert agent.request("GET", path, headers=AUTH).status == 404


def test_validate_names_each_problem_of_database_and_agents(
    place: Place, agent: Agent, capsys: Captured
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    place.write(
        agents={"urls": [agent.url, away], "password": "wrong"},
        database={"url": f"sqlite:///{place.file}", "table": "nope"},
    )
    assert main(["validate", "-f", str(place.path)]) == 1
    database, refusing, missing = capsys.readouterr().err.splitlines()
    assert 'database.table: the database has no table "nope"' in database
    assert f"oplog-relay: {agent.url}" in refusing
    assert "agents.password" in refusing
    assert f"oplog-relay: {away}" in missing


def test_the_commands_and_the_statements_of_the_page_work_on_postgresql(
    place: Place, postgres: PostgresServer, capsys: Captured
) -> None:
    url = postgres.new_database()
    columns = {"table": "Out%box", "columns": {"id": "100% id"}}
    settings = place.write(database={"url": url, **columns})
    with psycopg.connect(url, autocommit=True) as database:
        assert main(["schema", "postgres", "-f", settings]) == 0
        database.execute(capsys.readouterr().out.encode())
        assert main(["pump", "-f", settings, "--records", "5", "--count", "2"]) == 0
        assert capsys.readouterr().out.startswith("10 rows, ")
        database.execute(
            """UPDATE "Out%box" SET leader_id = gen_random_uuid() WHERE "100% id" > 8"""
        )
        assert main(["validate", "-f", settings]) == 0
        assert "table Out%box, 10 rows\n" in capsys.readouterr().out
        assert main(["skip", "3", "99", "-f", settings, "--yes"]) == 1
        shown = capsys.readouterr().out.splitlines()
        assert re.fullmatch(
            r"row 3: topic pump, key key-2, [\d-]+ [\d:.]+\+00:00, value 100 characters", shown[0]
        )
        assert main(["status", "-f", settings, "--json"]) == 1
        outbox = json.loads(capsys.readouterr().out)["outbox"]
        assert (outbox["rows"], outbox["marked_by_others"]) == (9, 2)
        statements = [line.strip() for line in PAGE.splitlines() if line.endswith(";")]
        assert [each.split()[0] for each in statements] == ["ALTER", "SELECT"]
        for each in statements:
            database.execute(each.replace("TABLE outbox", 'TABLE "Out%box"').encode())
    place.write(database={"url": url, "table": "nope"})
    assert main(["skip", "3", "-f", settings, "--yes"]) == 1
    assert capsys.readouterr().err == (
        'oplog-relay: PostgreSQL (database.url): relation "nope" does not exist\n'
    )


def problem(status: int) -> bytes:
    """Return an agent's refusal."""
    body = json.dumps({"title": "No", "status": status, "detail": "as the test wants"})
    head = f"HTTP/1.1 {status} No\r\nContent-Type: application/problem+json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def test_an_agent_without_leases_is_named(place: Place, capsys: Captured) -> None:
    with ScriptedServer([problem(404)]) as old:
        place.write(agents=[old.url])
        assert main(["validate", "-f", str(place.path)]) == 1
        assert capsys.readouterr().err == (
            f"oplog-relay: agents.urls: {old.url} has no leases: update it\n"
        )
        assert main(["status", "-f", str(place.path)]) == 1
        assert capsys.readouterr().out.splitlines() == [
            f"{place.name}: the lease is not known",
            "outbox: empty",
            f"problem: agents.urls: {old.url} has no leases: update it",
        ]


def test_a_lease_that_may_not_be_read_is_no_problem(place: Place, capsys: Captured) -> None:
    with ScriptedServer([problem(404), problem(400), problem(401)]) as agent:
        place.write(agents=[agent.url])
        assert main(["validate", "-f", str(place.path)]) == 0
        assert capsys.readouterr().out.endswith(
            f"lease {place.name}, which may be taken, but not looked at\n"
        )


def test_metrics_that_cannot_be_served_are_a_wrong_setting(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with place.run("--metrics-listen", address) as relay:
            assert relay.wait() == 2
        assert relay.log[-1] == (
            f"oplog-relay: metrics_listen: cannot listen on {address}: Address already in use\n"
        )
        assert BEGINS not in relay.text()


def test_skip_asks_at_a_terminal(place: Place) -> None:
    place.insert("pump", "pump")
    for answer, code, left in (("n", 1, 2), ("y", 0, 1)):
        ours, theirs = pty.openpty()
        with Forked[str](
            [sys.executable, "-m", "oplog_relay", "skip", "1", "-f", str(place.path)],
            stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            os.close(theirs)
            os.write(ours, f"{answer}\n".encode())
            out, err = process.communicate(timeout=DEADLINE)
        os.close(ours)
        assert "Delete 1 row? [y/N]: " in out + err
        assert process.returncode == code
        place.wait_rows(left)


def test_a_library_that_is_missing_is_named() -> None:
    program = "import sys; sys.modules['yaml'] = None; from oplog_relay.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert ended.stderr.startswith("oplog-relay: yaml is missing; in the checkout of oplog, run: ")
    assert len(ended.stderr.splitlines()) == 1


def test_an_installation_without_the_extra_is_told_how_to_install_it() -> None:
    # None in the place of a module: it cannot be imported.
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['httpx', 'oplogc', 'psycopg', 'yaml']));"
        " from oplog_relay.cli import main; sys.exit(main(['--help']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(
        r"oplog-relay: \S+ is missing; in the checkout of oplog, run:"
        r" pip install -c constraints\.txt '\.\[relay\]' \./clients/python\n",
        ended.stderr,
    )
