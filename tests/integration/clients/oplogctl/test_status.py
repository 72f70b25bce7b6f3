"""``oplogctl status``, ``consumers`` and ``send``, and the agent's address before the command."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplogc.ctl import cli
from tests.kits.agents.agent import Agent
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def run(capsys: Capture, *arguments: str) -> tuple[int, list[str], str]:
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_an_operation_is_sent_with_its_parents(agent: Agent, capsys: Capture) -> None:
    with agent.follow() as stream:
        parents = ("--parent", "user/ada", "--parent", "a,b")
        url = ("--url", agent.url)
        code, out, err = run(capsys, "send", "update", "Video/x/1", *parents, *url)
        assert (code, out, err) == (0, ["update of video/x/1 is stored"], "")
        (event,) = stream.take(1)
        assert (event.event, event.key) == ("update", "video/x/1")
        assert json.loads(event.data)["parents"] == ["user/ada", "a,b"]
        time = ("--timestamp", "2026-01-31T13:00:00+01:00")
        code, out, _ = run(capsys, "send", "delete", "video/y", *time, "--json", *url)
        assert (code, json.loads(out[0])) == (0, {"event": "delete", "type": "video", "id": "y"})
        (event,) = stream.take(1)
        data = json.loads(event.data)
        assert (data["timestamp"], data["parents"]) == ("2026-01-31T12:00:00.000Z", [])


def test_an_id_cannot_steer_the_terminal(agent: Agent, capsys: Capture) -> None:
    code, out, err = run(capsys, "send", "insert", "video/\x1b[31m\n\u00e9", "--url", agent.url)
    assert (code, out, err) == (0, ["insert of video/\\x1b[31m\\n\u00e9 is stored"], "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["upsert", "video/x"], "insert|update|delete: 'upsert' is not an event: give insert,"),
        (["insert", "video"], "TYPE/ID: 'video' is not TYPE/ID, such as video/x1"),
        (["insert", "/x"], "TYPE/ID: '/x' is not TYPE/ID, such as video/x1"),
        (["insert", "a,b/x"], "type: must not contain '/' or ','"),
        (["insert", "a/b", "--timestamp", "noon"], "timestamp: not an RFC 3339 time"),
        (["insert", "a/b", "--parent", ""], "parents: must not be empty"),
        (["insert", "a/b", "c/d"], "unknown argument c/d"),
        (["insert", "a/\udcff"], r"TYPE/ID: 'a/\udcff' is not UTF-8"),
        (["insert", "a/b", "--parent", "\udcff"], r"--parent: '\udcff' is not UTF-8"),
        (["insert", "a/b", "--timestamp", "\udcff"], r"--timestamp: '\udcff' is not UTF-8"),
    ],
)
def test_a_bad_operation_is_refused_before_it_is_sent(
    arguments: list[str], sentence: str, capsys: Capture
) -> None:
    code, out, err = run(capsys, "send", *arguments, "--url", "localhost:1")
    assert (code, out) == (2, [])
    assert err.startswith(f"oplogctl: {sentence}")


def test_a_password_for_writing_is_asked_for(tmp_path: Path, capsys: Capture) -> None:
    with Agent(tmp_path, "--ingest-password", "geheim") as agent:
        code, _, err = run(capsys, "--url", agent.url, "send", "insert", "a/b")
        assert (code, "give --ingest-password-file" in err) == (1, True)
        (tmp_path / "password").write_text("geheim")
        file = ("--ingest-password-file", str(tmp_path / "password"))
        assert run(capsys, "--url", agent.url, *file, "send", "insert", "a/b")[0] == 0


def test_the_status_of_an_agent_that_works_is_shown(agent: Agent, capsys: Capture) -> None:
    code, out, err = run(capsys, "status", "--url", agent.url)
    assert (code, err, out[0]) == (0, "", "status      OK")
    titles = [line.partition(" ")[0] for line in out]
    assert titles == ["status", "version", "store", "received", "queue", "consumers", "topics"]
    code, out, _ = run(capsys, "status", "--json", "--url", agent.url)
    assert json.loads(out[0])["queue_max_size"] == 100_000


def test_a_degraded_agent_is_shown_with_its_reason_and_ends_with_1(capsys: Capture) -> None:
    body = json.dumps(
        {"status": "DEGRADED", "reason": "the disk\x1b[31m is full", "store": {"kind": "sqlite"}}
    )
    with ScriptedServer([answer("503 Service Unavailable", body)]) as server:
        code, out, err = run(capsys, "status", "--url", server.url)
    shown = r"the disk\x1b[31m is full"
    assert (code, out) == (1, [f"status      DEGRADED, {shown}", "store       sqlite"])
    assert err == f"oplogctl: the agent is DEGRADED: {shown}\n"


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (answer("200 OK", "[]"), "is no agent: it has no status"),
        (answer("200 OK", "<html>"), "is no agent: it has no status"),
        (answer("404 Not Found", "{}"), "(HTTP 404)"),
        (answer("503 Service Unavailable", "busy"), "is no agent: it has no status"),
    ],
)
def test_another_server_is_no_agent(reply: bytes, sentence: str, capsys: Capture) -> None:
    with ScriptedServer([reply]) as server:
        code, out, err = run(capsys, "status", "--url", server.url)
    assert (code, out) == (1, [])
    assert sentence in err


@pytest.mark.parametrize("command", [["status"], ["status", "--json"], ["consumers"]])
def test_another_server_with_a_status_is_no_agent(command: list[str], capsys: Capture) -> None:
    body = json.dumps({"status": "OK", "consumers": [{"filter": None}]})
    with ScriptedServer([answer("200 OK", body)]) as server:
        code, out, err = run(capsys, *command, "--url", server.url)
    said = "this is no agent of oplog (unexpected member consumers[0].filter in /status)"
    assert (code, out, err) == (1, [], f"oplogctl: {server.url}/status: {said}\n")


def test_a_server_that_hangs_up_on_plain_http_may_speak_tls(capsys: Capture) -> None:
    with ScriptedServer([None]) as server:
        code, out, err = run(capsys, "status", "--url", server.url)
    said = "Server disconnected without sending a response; does it speak TLS? Then give https://"
    assert (code, out, err) == (1, [], f"oplogctl: {server.url}/status: {said}\n")


def test_an_address_without_an_agent_is_told_at_once(capsys: Capture) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    code, _, err = run(capsys, "status", "--url", url)
    reason = "connection refused: is oplogd running there?"
    assert (code, err) == (1, f"oplogctl: {url}/status: {reason}\n")


def test_consumers_are_listed_with_what_they_follow(agent: Agent, capsys: Capture) -> None:
    assert run(capsys, "consumers", "--url", agent.url) == (0, [], "")
    with agent.follow(types="video", parents="user/ada", name="search"), agent.follow():
        code, (titles, *rows), _ = run(capsys, "consumers", "--url", agent.url)
        shown = run(capsys, "consumers", "--json", "--url", agent.url)[1]
    assert (code, titles.split()) == (0, ["NAME", "ADDRESS", "FOLLOWS", "PHASE", "LAG", "SENT"])
    named, other = sorted(rows, reverse=True)
    assert named.split()[::2] == ["search", "operations", "user/ada)", "0"]
    assert other.split()[2:] == ["operations", "live", "0", "0"]
    assert {json.loads(line)["name"] for line in shown} == {"search", ""}


def test_a_consumer_that_is_held_is_shown_with_the_pointer(agent: Agent, capsys: Capture) -> None:
    consumer = {
        "name": "", "topic": "shop/orders", "held_by": "7", "address": "[::1]:5",
        "filter": {"types": [], "parents": [], "left_out": 0}, "phase": "live",
        "lag": {"operations": 1214, "seconds": 3.21}, "sent": 5,
    }  # fmt: skip
    body = json.dumps({"status": "OK", "consumers": [consumer], "consumers_left_out": 3})
    with ScriptedServer([answer("200 OK", body)]) as server:
        code, out, err = run(capsys, "consumers", "--url", server.url)
    assert (code, err) == (0, "and 3 others\n")
    assert re.split("  +", out[1]) == [
        "-", "[::1]:5", "shop/orders", "held by pointer 7", "1,214 (3.2 s)", "5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("", "the agent needs a password: give --password-file or OPLOGCTL_PASSWORD (HTTP 401)"),
        ("guess", "wrong password: the agent refuses it (HTTP 401)"),
    ],
)
def test_a_password_that_is_missing_is_told_from_a_wrong_one(
    password: str,
    reason: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPLOGCTL_PASSWORD", password)
    with Agent(tmp_path, "--password", "geheim") as agent:
        url = ("--url", agent.url)
        assert run(capsys, "consumers", *url) == (1, [], f"oplogctl: {reason}\n")
        left_out = f"oplogctl: consumers and refused datagrams are left out: {reason}\n"
        for flags in ((), ("--json",)):
            code, out, err = run(capsys, "status", *flags, *url)
            assert (code, bool(out), err) == (0, True, left_out)
        monkeypatch.setenv("OPLOGCTL_PASSWORD", "geheim")
        assert run(capsys, "consumers", *url) == (0, [], "")
        code, out, err = run(capsys, "status", "--json", *url)
        assert (code, "consumers" in json.loads(out[0]), err) == (0, True, "")


def test_too_many_guesses_are_told_from_a_wrong_password(capsys: Capture) -> None:
    replies = [
        answer("200 OK", json.dumps({"status": "OK"})),
        answer("429 Too Many Requests", json.dumps({"detail": "too many wrong passwords"})),
    ]
    reason = "too many wrong passwords (HTTP 429)"
    with ScriptedServer(replies) as server:
        code, out, err = run(capsys, "consumers", "--url", server.url)
    assert (code, out, err) == (1, [], f"oplogctl: {reason}\n")
    with ScriptedServer(replies) as server:
        code, _, err = run(capsys, "status", "--url", server.url)
    assert (code, err) == (
        0,
        f"oplogctl: consumers and refused datagrams are left out: {reason}\n",
    )


def test_an_agent_without_a_password_shows_consumers_on_its_own_machine_only(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = [answer("200 OK", json.dumps({"status": "OK"})), answer("200 OK", "{}")]
    for password in ("", "needless"):
        monkeypatch.setenv("OPLOGCTL_PASSWORD", password)
        with ScriptedServer(replies) as server:
            code, out, err = run(capsys, "consumers", "--url", server.url)
        assert (code, out, err) == (
            1,
            [],
            "oplogctl: the agent shows its consumers to clients with its password for reading;"
            " if it has none, on its own machine only\n",
        )
        with ScriptedServer(replies) as server:
            assert run(capsys, "status", "--url", server.url)[2] == ""


def test_a_flag_before_the_command_counts_unless_it_is_given_again(
    agent: Agent, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPLOG_URL", "localhost:1")
    for words in (["status"], ["topic", "list"], ["lease", "list"]):
        assert run(capsys, "--url", agent.url, *words)[0] == 0
    assert run(capsys, "--url", "localhost:1", "topic", "list", "--url", agent.url)[0] == 0
    code, _, err = run(capsys, "--url", "gopher://h", "topic", "list")
    assert (code, "'gopher://h' is no address" in err) == (2, True)
    missing = str(tmp_path / "missing")
    code, _, err = run(capsys, "--password-file", missing, "status", "--url", agent.url)
    assert (code, "--password-file: cannot read" in err) == (2, True)
