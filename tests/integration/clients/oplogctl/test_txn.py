"""``oplogctl txn``, and the isolation of ``oplogctl topic``."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplogc.ctl import cli
from oplogc.ctl.options.flags import VARIABLES
from oplogc.topics import Topics, Transaction
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.processes import forked
from tests.kits.store.sqlite_files import direct

COMMANDS = ("list", "show", "abort", "log")
TIME = r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[Agent]:
    with Agent(folder) as agent, Topics(agent.url) as topics:
        topics.create("t")
        yield agent


@pytest.fixture(autouse=True)
def variables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "agent" in request.fixturenames:
        monkeypatch.setenv("OPLOGCTL_URL", request.getfixturevalue("agent").url)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def start(url: str, *arguments: str) -> "subprocess.Popen[str]":
    return forked.start(
        [sys.executable, "-m", "oplogc.ctl", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPLOGCTL_URL": url},
    )


def printed(capsys: pytest.CaptureFixture[str], agent: Agent, *arguments: str) -> tuple[int, str]:
    """Return the exit code and the output. ``follow`` gets a process: it handles signals."""
    if "follow" not in arguments:
        return run(capsys, *arguments)[:2]
    process = start(agent.url, *arguments)
    out, _ = process.communicate(timeout=DEADLINE)
    return process.returncode, out


def committed(topics: Topics, group: str, *texts: str) -> Transaction:
    with topics.transaction(group=group) as txn:
        for text in texts:
            txn.write("t", text)
    return txn


def test_a_transaction_is_listed_shown_and_aborted(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    with Topics(agent.url) as topics:
        first = committed(topics, "shop", "a", "é")
        second = topics.transaction(group="shop")
        second.__enter__()
        code, out, err = run(capsys, "txn", "list", "--group", "shop")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        times = rf"begun_at={TIME} expires_at={TIME}"
        assert re.fullmatch(
            rf"{second.id} open group=shop {times} records=0 bytes=0 topics=- begin=[0-9a-f]{{40}}",
            lines[0],
        )
        assert re.fullmatch(
            rf"{first.id} committed group=shop {times} records=2 bytes=[0-9]+ topics=default/t"
            r" begin=[0-9a-f]{40} commit=[0-9a-f]{40}",
            lines[1],
        )
        assert len(lines) == 2
        assert run(capsys, "txn", "show", first.id) == (0, lines[1] + "\n", "")
        for arguments, wanted in (
            (("--state", "open"), [second.id]),
            (("--state", "committed"), [first.id]),
            (("--state", "committing"), []),
            (("--limit", "1"), [second.id]),
            ((), [second.id, first.id]),
        ):
            _, out, _ = run(capsys, "txn", "list", "--group", "shop", *arguments, "--json")
            assert [json.loads(line)["txn"] for line in out.splitlines()] == wanted
        code, out, _ = run(capsys, "txn", "show", first.id, "--json")
        shown = json.loads(agent.request("GET", f"/v1/txns/{first.id}").body)
        assert (code, json.loads(out)) == (0, shown)
        for _ in range(2):
            code, out, err = run(capsys, "txn", "abort", second.id)
            assert (code, err) == (0, "")
            assert out.startswith(f"{second.id} aborted (aborted by the client) group=shop ")
        code, out, err = run(capsys, "txn", "abort", first.id)
        assert (code, out) == (1, "")
        assert err == f"oplogctl: transaction {first.id} has committed (HTTP 409)\n"
        code, out, err = run(capsys, "txn", "show", "7")
        assert (code, out, err) == (1, "", "oplogctl: there is no transaction 7 (HTTP 404)\n")


def test_the_owner_of_a_transaction_is_printed(
    agent: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Topics(agent.url) as topics:
        id_ = committed(topics, "owned", "a").id
    with direct(folder / "oplog.db") as db:
        db.execute("INSERT INTO txn_owners VALUES (?, 'sub:ada')", (id_,))
    code, out, _ = run(capsys, "txn", "list", "--group", "owned")
    assert (code, " group=owned owner=sub:ada begun_at=" in out) == (0, True)
    code, out, _ = run(capsys, "txn", "show", id_, "--json")
    shown = json.loads(agent.request("GET", f"/v1/txns/{id_}").body)
    assert shown["owner"] == "sub:ada"
    assert (code, json.loads(out)) == (0, shown)


def test_the_commit_log_of_a_group_is_printed_and_followed(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "txn", "log", "--group", "logged")
    assert (code, out) == (1, "")
    assert err == "oplogctl: there is no topic system/_txn.logged (HTTP 404)\n"
    with Topics(agent.url) as topics:
        ids = [committed(topics, "logged", "a").id for _ in range(2)]
        code, out, err = run(capsys, "txn", "log", "--group", "logged")
        assert (code, err) == (0, "")
        pattern = (
            rf'{TIME} \{{"event":"(\w+)","txn":"([0-9]+)".*\}} key=([0-9]+) \[([0-9a-f]{{40}})\]'
        )
        found = [re.fullmatch(pattern, line) for line in out.splitlines()]
        assert [match and match.groups()[:3] for match in found] == [
            (event, id_, id_) for id_ in ids for event in ("begin", "commit")
        ]
        positions = [match[4] for match in found if match]
        _, out, _ = run(capsys, "txn", "log", "--group", "logged", "-n", "3", "--json")
        assert [json.loads(line)["id"] for line in out.splitlines()] == positions[:3]
        arguments = ("txn", "log", "--group", "logged", "--from", positions[2], "--json")
        _, out, _ = run(capsys, *arguments)
        assert [json.loads(line)["id"] for line in out.splitlines()] == positions[2:]
        process = start(agent.url, "txn", "log", "--group", "logged", "--follow")
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert [line[-42:-2] for line in lines] == positions
        third = committed(topics, "logged")
        assert third.id in process.stdout.readline()
        assert '"event":"commit"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in err


def test_poll_peek_and_follow_take_an_isolation(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    with Topics(agent.url) as topics:
        topics.create("isolated")
        with topics.transaction() as txn:
            txn.write("isolated", "late")
            while not topics.poll("isolated", isolation="read_uncommitted").messages:
                pass
            topics.publish("isolated", "plain").result(DEADLINE)
            for command, seen in (
                ("poll isolated", "plain"),
                ("peek isolated", "plain"),
                ("follow isolated --from 0 -n 1", "plain"),
                ("poll isolated --isolation read_committed", "plain"),
                ("poll isolated --isolation read_uncommitted", "late plain"),
                ("peek isolated --isolation read_uncommitted", "late plain"),
                ("follow isolated --from 0 -n 2 --isolation read_uncommitted", "late plain"),
            ):
                code, out = printed(capsys, agent, "topic", *command.split(), "--json")
                texts = [json.loads(line)["payload"] for line in out.splitlines()]
                assert (code, " ".join(texts)) == (0, seen)
        for command in ("poll isolated", "peek isolated -n 2"):
            arguments = ("topic", *command.split(), "--isolation", "read_committed", "--json")
            _, out, _ = run(capsys, *arguments)
            texts = [json.loads(line)["payload"] for line in out.splitlines()]
            assert texts == ["plain", "late"]


def test_the_password_for_writing_is_needed_to_abort(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--password", "geheim-read", "--ingest-password", "geheim-write")
    with Agent(tmp_path, *flags) as agent:
        monkeypatch.setenv("OPLOGCTL_URL", agent.url)
        monkeypatch.setenv("OPLOGCTL_PASSWORD", "geheim-read")
        with (
            Topics(agent.url, password="geheim-read", ingest_password="geheim-write") as topics,
            topics.transaction() as txn,
        ):
            assert run(capsys, "txn", "show", txn.id)[0] == 0
            wrong = "oplogctl: wrong password: the agent refuses it (HTTP 401)\n"
            assert run(capsys, "txn", "abort", txn.id) == (1, "", wrong)
            monkeypatch.setenv("OPLOGCTL_INGEST_PASSWORD", "geheim-write")
            assert run(capsys, "txn", "abort", txn.id)[0] == 0
            txn.abort()


def test_the_help_names_every_flag_with_its_variable_within_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    helps = {}
    for words in ([], ["txn"], *(["txn", name] for name in COMMANDS)):
        assert cli.main([*words, "--help"]) == 0
        helps[" ".join(words)] = capsys.readouterr().out
    for text in helps.values():
        assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "\n  txn " in helps[""]
    for name in COMMANDS:
        assert f"\n  {name} " in helps["txn"]
        text = " ".join(helps[f"txn {name}"].split())
        for flag in ("--url URL", "--password-file PATH", "--json", *VARIABLES):
            assert flag in text
    for name in ("poll", "peek", "follow"):
        assert cli.main(["topic", name, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "--isolation ISOLATION" in text
        assert "[default: read_committed]" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["txn", "show"], "ID: is missing"),
        (["txn", "show", "../x"], "ID: '../x' is not the id of a transaction: give its digits"),
        (["txn", "abort", "x"], "ID: 'x' is not the id of a transaction"),
        (["txn", "list", "1"], "unknown argument 1"),
        (["txn", "list", "--state", "done"], "--state: 'done' is not a state: give open, "),
        (["txn", "list", "--limit", "1001"], "--limit: '1001' is more than 1,000"),
        (["txn", "list", "--limit", "0"], "--limit: '0' is not a whole number of at least 1"),
        (["txn", "list", "--group", "a/b"], "--group: 'a/b' is not a group"),
        (["txn", "log", "--group", ""], "--group: group: must not be empty"),
        (["txn", "log", "--from", "x"], "--from: 'x' is neither an id"),
        (["txn", "log", "--count", "x"], "--count: 'x' is not a whole number"),
        (
            ["topic", "poll", "t", "--isolation", "dirty"],
            "--isolation: 'dirty' is not an isolation",
        ),
        (["topic", "peek", "t", "--isolation", ""], "--isolation: '' is not an isolation"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_that_names_the_flag(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"oplogctl: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        ("oplogctl txn ", "", ["abort", "list", "log", "show"]),
        ("oplogctl txn list --state ", "comm", ["committing", "committed"]),
        ("oplogctl topic poll --isolation ", "read_c", ["read_committed"]),
    ],
)
def test_the_shell_completes_commands_and_choices(
    words: str, incomplete: str, found: list[str]
) -> None:
    given = f"{words}{incomplete}"
    done = forked.run(
        [sys.executable, "-m", "oplogc.ctl"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={
            **os.environ,
            "_OPLOGCTL_COMPLETE": "bash_complete",
            "COMP_WORDS": given,
            "COMP_CWORD": str(words.count(" ")),
        },
    )
    assert done.returncode == 0
    assert [line.split(",")[1] for line in done.stdout.splitlines()] == found
