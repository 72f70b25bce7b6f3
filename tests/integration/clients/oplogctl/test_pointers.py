"""Pointers in ``oplogctl``, and the entries that it shows."""

import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplogc.ctl import cli
from oplogc.ctl.options.flags import VARIABLES
from oplogc.topics import ForeignTransaction, Topics
from tests.kits.agents.agent import Agent
from tests.kits.servers.scripted import ScriptedServer, answer

TIME = r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z"
POINTER = "1790000000000000000"
UNDER = ("--pointer", POINTER)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent, Topics(agent.url) as topics:
        for name in ("shown", "rolled", "held", "behind", "lines", "u"):
            topics.create(name)
        yield agent


@pytest.fixture(autouse=True)
def variables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "agent" in request.fixturenames:
        monkeypatch.setenv("OPLOGCTL_URL", request.getfixturevalue("agent").url)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    return raw


def give(stdin: io.BytesIO, content: bytes) -> None:
    stdin.seek(0)
    stdin.truncate()
    stdin.write(content)
    stdin.seek(0)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def payloads(url: str, topic: str, transaction: ForeignTransaction | None = None) -> list[str]:
    with Topics(url) as topics:
        found = topics.poll(
            topic,
            isolation="read_uncommitted" if transaction is None else "read_committed",
            transaction=transaction,
        ).messages
    return [str(each.text) for each in found]


def test_messages_are_stored_and_published_under_a_pointer_and_shown(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = ("topic", "publish", "shown")
    assert run(capsys, *topic, "plain")[0] == 0
    assert run(capsys, *topic, "a", "b", "--key", "k", *UNDER) == (
        0, f"2 messages are published to default/shown under pointer {POINTER}\n", "",
    )  # fmt: skip
    stored = ("topic", "store", "shown", "c", "d", "--ttl", "1h", "--pointer", "7")
    assert run(capsys, *stored) == (
        0, "2 messages are stored in default/shown under pointer 7\n", "",
    )  # fmt: skip
    code, out, _ = run(capsys, *stored, "--json")
    assert (code, json.loads(out)) == (
        0, {"topic": "default/shown", "pointer": "7", "stored": 2},
    )  # fmt: skip
    code, out, err = run(capsys, "topic", "pointers", "shown")
    assert (code, err) == (0, "")
    times = rf"begun_at={TIME} expires_at={TIME}"
    assert re.fullmatch(rf"{POINTER} published {times}\n7 stored {times}\n", out)
    _, out, _ = run(capsys, "topic", "pointers", "shown", "-n", "1", "--json")
    (listed,) = json.loads(agent.request("GET", PATH.format("pointers?limit=1")).body)
    assert [json.loads(line) for line in out.splitlines()] == [listed]
    assert run(capsys, *topic, "--pointer", "7") == (
        0, "the stored messages are published to default/shown under pointer 7\n", "",
    )  # fmt: skip
    assert payloads(agent.url, "shown") == ["plain", "a", "b", *"cdcd"]

    assert run(capsys, "pointer", "commit", "7", "--topic", "shown", "--topic", "u") == (
        0, "pointer 7 is committed in default/shown, default/u\n", "",
    )  # fmt: skip
    aborted = ("pointer", "abort", POINTER, "--topic", "shown", "--topic", "default/shown")
    for _ in range(2):
        code, out, _ = run(capsys, *aborted, "--json")
        assert (code, json.loads(out)) == (
            0, {"pointer": POINTER, "state": "aborted", "topics": ["default/shown"]},
        )  # fmt: skip
    code, out, err = run(capsys, "pointer", "commit", POINTER, "--topic", "shown")
    assert (code, out) == (1, "")
    assert "aborted" in err

    code, out, err = run(capsys, "topic", "entries", "shown")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert [rows[0][each] for each in (0, 2, 3, 4, 5, 6)] == [
        "OFFSET", "KIND", "POINTER/TXN", "STATE", "RECORDS", "BYTES",
    ]  # fmt: skip
    assert len({line.index(cell) for line, cell in zip(out.splitlines(), COLUMN, strict=True)}) == 1
    assert all(re.fullmatch(TIME, row[1]) for row in rows[1:])
    assert [(row[0], *row[2:6]) for row in rows[1:]] == [
        ("1", "message", "-", "-", "-"),
        ("2", "direct", POINTER, "aborted", "-"),
        ("3", "direct", POINTER, "aborted", "-"),
        ("4", "publish", "7", "committed", "4"),
        ("5", "commit", "7", "committed", "-"),
        ("6", "abort", POINTER, "aborted", "-"),
    ]
    code, out, _ = run(capsys, "topic", "entries", "shown", "--after", "3", "-n", "2", "--json")
    raw = json.loads(agent.request("GET", PATH.format("entries?after=3&limit=2")).body)
    assert [json.loads(line) for line in out.splitlines()] == raw
    assert len(raw) == 2
    assert run(capsys, "topic", "entries", "lines") == (0, "", "")
    assert run(capsys, "topic", "pointers", "lines") == (0, "", "")


PATH = "/v1/namespaces/default/topics/shown/{}"
COLUMN = ("KIND", "message", "direct", "direct", "publish", "commit", "abort")


def test_answers_and_keys_are_rolled_back(
    agent: Agent, capsys: pytest.CaptureFixture[str], tmp_path: Path, stdin: io.BytesIO
) -> None:
    def published(*texts: str) -> str:
        code, out, _ = run(capsys, "topic", "publish", "rolled", *texts, *UNDER, "--json")
        assert code == 0
        return out

    whole = ("topic", "rollback", "rolled", *UNDER)
    first, second = published("a", "b"), published("c")
    published("d", "e")
    document = json.loads(first)
    assert (document["transactionWritePointer"], len(document["messages"])) == (int(POINTER), 2)
    give(stdin, (first + "\n" + second).encode())
    told = f"rolled back in default/rolled under pointer {POINTER}: "
    for _ in range(2):
        give(stdin, (first + "\n" + second).encode())
        assert run(capsys, *whole, "-") == (0, f"{told}entries: 3\n", "")
    assert payloads(agent.url, "rolled") == ["d", "e"]
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(json.loads(published("f")), indent=2))
    assert run(capsys, *whole, f"@{file}")[0] == 0
    assert payloads(agent.url, "rolled") == ["d", "e"]
    _, out, _ = run(capsys, "topic", "entries", "rolled", "--json")
    entries = [json.loads(line) for line in out.splitlines()]
    (key,) = [each["id"] for each in entries if each["kind"] == "direct"][:1]
    code, out, _ = run(capsys, *whole, key, "--json")
    assert (code, json.loads(out)) == (
        0, {"topic": "default/rolled", "pointer": POINTER, "keys": [key]},
    )  # fmt: skip
    assert payloads(agent.url, "rolled") == ["e"]
    assert run(capsys, *whole) == (0, f"{told}everything\n", "")
    assert payloads(agent.url, "rolled") == []


def test_a_read_says_when_it_is_held(
    agent: Agent, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(capsys, "topic", "publish", "held", "first", *UNDER)
    run(capsys, "topic", "publish", "held", "second")
    held = (
        f"oplogctl: pointer {POINTER} holds this reader: its messages, and those after them,"
        " cannot be read yet\n"
    )
    file = tmp_path / "transaction.json"
    file.write_text(json.dumps({"readPointer": POINTER, "invalid": [int(POINTER)]}))
    for flags, seen, said in (
        (("--transaction", '{"readPointer": 1}'), [], held),
        (("--transaction", f'{{"readPointer": {POINTER}}}'), ["first", "second"], ""),
        (("--transaction", f"@{file}"), ["second"], ""),
        ((), [], held),
        (("--isolation", "read_uncommitted"), ["first", "second"], ""),
    ):
        code, out, err = run(capsys, "topic", "poll", "held", *flags, "--json")
        assert [json.loads(line)["payload"] for line in out.splitlines()] == seen
        assert (code, err) == (0, said)
    assert run(capsys, "topic", "peek", "held") == (0, "", held)
    run(capsys, "topic", "publish", "behind", "before")
    run(capsys, "topic", "publish", "behind", "first", *UNDER)
    for flags, seen, said in (
        ((), ["before"], held),
        (("--isolation", "read_uncommitted"), ["before", "first"], ""),
    ):
        code, out, err = run(capsys, "topic", "peek", "behind", *flags, "--json")
        assert [json.loads(line)["payload"] for line in out.splitlines()] == seen
        assert (code, err) == (0, said)


def test_lines_of_stdin_go_out_in_several_requests(
    agent: Agent, capsys: pytest.CaptureFixture[str], stdin: io.BytesIO
) -> None:
    numbers = [str(number) for number in range(1500)]
    give(stdin, "\n".join(numbers).encode())
    code, out, _ = run(capsys, "topic", "publish", "lines", "-", *UNDER, "--json")
    assert code == 0
    counts = [len(json.loads(line)["messages"]) for line in out.splitlines()]
    assert counts == [1000, 500]
    give(stdin, "\n".join(numbers).encode())
    assert run(capsys, "topic", "store", "lines", "-", "--pointer", "7") == (
        0, "1,500 messages are stored in default/lines under pointer 7\n", "",
    )  # fmt: skip
    give(stdin, b"")
    assert run(capsys, "topic", "publish", "lines", "-", "--pointer", "7") == (
        0, "0 messages are published to default/lines under pointer 7\n", "",
    )  # fmt: skip
    with Topics(agent.url) as topics:
        assert [each.records for each in topics.entries("lines", limit=1)] == [None]
    give(stdin, b"x\n" * 1000 + b"y" * 1_048_577)
    code, out, err = run(capsys, "topic", "publish", "lines", "-", *UNDER)
    assert (code, out) == (1, "")
    assert err == (
        "oplogctl: message 1,001: message: has 1,048,577 bytes, more than 1,048,576. "
        "0 messages are published\n"
    )


def test_a_lost_answer_ends_publishing_under_a_pointer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = answer("503 Busy", '{"detail":"not confirmed"}')
    with ScriptedServer([busy]) as server:
        monkeypatch.setenv("OPLOGCTL_URL", server.url)
        for command, done in (("publish", "published"), ("store", "stored")):
            code, out, err = run(capsys, "topic", command, "t", "a", *UNDER)
            assert (code, out) == (1, "")
            url = f"{server.url}/v1/namespaces/default/topics/t/{command}"
            assert err == (
                f"oplogctl: {command}: the messages may be stored, roll them back: {url}: not"
                f" confirmed (HTTP 503). 0 messages are {done}\n"
            )
        assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("topic publish t a --pointer -1", "--pointer: '-1' is not a pointer: give a whole"),
        ("topic publish t a --pointer x", "--pointer: 'x' is not a pointer"),
        ("topic publish t a - --pointer 1", "give messages, or - alone"),
        ("topic publish t --pointer 1 --key k", "--key: give messages"),
        ("topic publish t --pointer 1 --header a=b", "--header: give messages"),
        ("topic publish t --pointer 1 --ttl 1h", "--ttl: give messages"),
        ("topic store t a", "--pointer: is missing"),
        ("topic store t --pointer 1", "give messages, or - alone"),
        ("topic rollback t", "--pointer: is missing"),
        ("topic rollback t x --pointer 1", "[KEY...|@FILE|-]: 'x' is not a key: give 20 lower"),
        ("topic rollback t @/no/such --pointer 1", "[KEY...|@FILE|-]: cannot read /no/such: No"),
        ("topic poll t --transaction @/no/such", "--transaction: cannot read /no/such: No such"),
        ("topic poll t --transaction x", "--transaction: it is no JSON"),
        ("topic poll t --transaction {}", "--transaction: readPointer: is required"),
        (
            'topic poll t --transaction {"readPointer":1} --isolation read_uncommitted',
            "--transaction and --isolation read_uncommitted exclude each other",
        ),
        ("topic entries t --after -1", "--after: '-1' is not an offset"),
        (
            "topic entries t --after 999999999999999999999999",
            "--after: '999999999999999999999999' is not an offset: give a whole number from 0 to"
            " 1099511627775",
        ),
        ("topic entries t --after 1099511627776", "--after: '1099511627776' is not an offset"),
        ("topic entries t -n 1001", "--limit: '1001' is more than 1,000"),
        ("topic pointers t -n 0", "--limit: '0' is not a whole number"),
        ("pointer commit 1", "--topic: is missing"),
        ("pointer commit --topic t", "POINTER: is missing"),
        ("pointer abort 4611686018427387904 --topic t", "POINTER: '4611686018427387904' is not a"),
        ("pointer abort 1 --topic a/b/c", "--topic: 'a/b/c' is not a topic"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_that_names_the_flag(
    capsys: pytest.CaptureFixture[str], arguments: str, sentence: str
) -> None:
    code, out, err = run(capsys, *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"oplogctl: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "there is no answer of a publish"),
        (b"\n\n", "there is no answer of a publish"),
        (b"{", "it is no JSON"),
        (b"[]", "it is not the answer of a publish under a pointer"),
        (b'{"transactionWritePointer": 1, "messages": []}', "the answer has no messages"),
        (
            b'{"transactionWritePointer": 2, "messages": []}',
            "it is the answer for pointer 2, not 1",
        ),
        (b"\xff", "stdin is not UTF-8"),
    ],
)
def test_a_rollback_without_an_answer_does_not_mean_everything(
    capsys: pytest.CaptureFixture[str], stdin: io.BytesIO, content: bytes, sentence: str
) -> None:
    give(stdin, content)
    code, out, err = run(capsys, "topic", "rollback", "t", "-", "--pointer", "1")
    assert (code, out, err) == (2, "", f"oplogctl: [KEY...|@FILE|-]: {sentence}\n")


def test_the_help_names_every_flag_with_its_variable_within_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in (
        "topic publish", "topic store", "topic rollback", "topic entries", "topic pointers",
        "pointer commit", "pointer abort",
    ):  # fmt: skip
        group, name = command.split()
        assert cli.main([group, "--help"]) == 0
        assert f"\n  {name} " in capsys.readouterr().out
        assert cli.main([group, name, "--help"]) == 0
        text = capsys.readouterr().out
        assert [line for line in text.splitlines() if len(line) > 80] == []
        for flag in ("--url URL", "--password-file PATH", "--json", *VARIABLES):
            assert flag in " ".join(text.split())
