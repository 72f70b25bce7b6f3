"""oplogctl as a process with a terminal, a pipe or a file."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplogc.topics import Message, Topics
from tests.integration.clients.oplogctl.oplogctl import run, start
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.contract.wire import wait_until
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer

TIME = r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z"
BUSY = answer("503 Busy", '{"detail":"the store is unreachable"}', "Retry-After: 1")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def test_a_topic_from_its_creation_to_its_end(agent: Agent) -> None:
    url = agent.url.removeprefix("http://")  # a scheme is not needed
    assert run(url, "create", "life/t", "--ttl", "90m") == (0, "life/t ttl=90m\n", "")
    assert run(url, "create", "life/t") == (
        1, "", "oplogctl: the topic life/t exists already (HTTP 409)\n",
    )  # fmt: skip
    assert run(url, "show", "life/t")[1] == "life/t ttl=90m\n"
    assert run(url, "update", "life/t", "--ttl", "default")[1] == "life/t ttl=7d\n"
    bounded = run(url, "update", "life/t", "--ttl", "default", "--max-bytes", "2MB")[1]
    assert bounded == "life/t ttl=7d max_bytes=2097152\n"
    assert run(url, "update", "life/t", "--ttl", "1h")[1] == "life/t ttl=1h max_bytes=2097152\n"
    assert run(url, "update", "life/t", "--ttl", "1h", "--max-bytes", "none")[1] == (
        "life/t ttl=1h\n"
    )
    assert run(url, "create", "life/small", "--max-bytes", "1000")[0] == 2
    assert run(url, "create", "life/small", "--max-bytes", "1MB")[1] == (
        "life/small ttl=7d max_bytes=1048576\n"
    )
    assert run(url, "delete", "life/small")[0] == 0
    described = {"namespace": "life", "name": "t", "properties": {"ttl": "3600"}}
    code, out, _ = run(url, "update", "life/t", "--ttl", "3600", "--json")
    assert (code, json.loads(out)) == (0, described)
    assert [json.loads(run(url, *arguments, "--json")[1]) for arguments in (
        ("list", "life"), ("show", "life/t"),
    )] == [described] * 2  # fmt: skip
    assert run(url, "list", "system")[1].startswith("system/oplog bytes=")
    assert run(url, "list", "unused") == (0, "", "")
    assert run(url, "delete", "life/t") == (0, "life/t is deleted\n", "")
    code, out, err = run(url, "delete", "life/t", "--json")
    assert (code, out, err) == (1, "", "oplogctl: there is no topic life/t (HTTP 404)\n")


def test_the_properties_of_a_topic_that_concern_pointers(agent: Agent) -> None:
    given = ("--pointers", "off", "--pointer-timeout", "90s")
    line = "rules/t ttl=7d pointers=off pointer_timeout=90s\n"
    assert run(agent.url, "create", "rules/t", *given) == (0, line, "")
    assert run(agent.url, "show", "rules/t")[1] == line
    code, _, err = run(agent.url, "publish", "rules/t", "a", "--pointer", "7")
    assert (code, "its property pointers is off" in err) == (1, True)
    kept = "rules/t ttl=1h pointers=off pointer_timeout=90s\n"
    assert run(agent.url, "update", "rules/t", "--ttl", "1h")[1] == kept
    default = ("--pointers", "on", "--pointer-timeout", "default")
    assert run(agent.url, "update", "rules/t", "--ttl", "1h", *default)[1] == "rules/t ttl=1h\n"
    for flag, wrong in (("--pointers", "maybe"), ("--pointer-timeout", "31d")):
        code, out, err = run(agent.url, "create", "rules/u", flag, wrong)
        assert (code, out) == (2, "")
        assert err.startswith(f"oplogctl: {flag}: '{wrong}' is n")


def test_messages_are_published_and_shown(agent: Agent) -> None:
    assert run(agent.url, "create", "shown")[0] == 0
    arguments = ("--key", "k", "--header", "a=b=c", "--header", "d=", "--ttl", "1h")
    assert run(agent.url, "publish", "shown", "é", "\x1b[31m\n", *arguments) == (
        0, "2 messages are published to default/shown\n", "",
    )  # fmt: skip
    with Topics(agent.url) as topics:
        topics.publish("shown", b"\xff\n", Message(None)).result()
    code, out, err = run(agent.url, "poll", "shown")
    assert (code, err) == (0, "")
    shown = [r"é key=k a=b=c d=", r"\\x1b\[31m\\n key=k a=b=c d=", r"\\xff\\n", r"\(none\)"]
    assert len(out.splitlines()) == len(shown)
    for line, words in zip(out.splitlines(), shown, strict=True):
        assert re.fullmatch(rf"{TIME} {words} \[[0-9a-f]{{40}}\]", line)
    code, out, _ = run(agent.url, "poll", "shown", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [set(line) - {"id", "published"} for line in lines] == [
        {"payload", "key", "headers"}, {"payload", "key", "headers"},
        {"payload", "encoding"}, {"payload"},
    ]  # fmt: skip
    assert [line["payload"] for line in lines] == ["é", "\x1b[31m\n", "/wo=", None]
    assert lines[0]["headers"] == [["a", "b=c"], ["d", ""]]


def test_nothing_that_looks_into_a_topic_consumes_it(agent: Agent) -> None:
    run(agent.url, "create", "looked")
    run(agent.url, "publish", "looked", "a", "b", "c")
    for _ in range(2):
        ids = [line.split("[")[1] for line in run(agent.url, "poll", "looked")[1].splitlines()]
        assert len(ids) == 3
        assert len(run(agent.url, "peek", "looked")[1].splitlines()) == 3
        lines = run(agent.url, "follow", "looked", "--from", "0", "-n", "3")[1].splitlines()
        assert [line.split("[")[1] for line in lines] == ids


def test_a_poll_and_a_peek_have_bounds(agent: Agent) -> None:
    run(agent.url, "create", "bounds")
    run(agent.url, "publish", "bounds", "-", stdin="".join(f"{n}\n" for n in range(2500)))

    def payloads(*arguments: str) -> list[str]:
        code, out, _ = run(agent.url, *arguments, "--json")
        assert code == 0
        return [json.loads(line)["payload"] for line in out.splitlines()]

    assert payloads("poll", "bounds") == [str(number) for number in range(1000)]
    assert payloads("peek", "bounds") == [str(number) for number in range(2490, 2500)]
    assert payloads("peek", "bounds", "-n", "1500") == [str(n) for n in range(1000, 2500)]
    first = json.loads(run(agent.url, "poll", "bounds", "-n", "1", "--json")[1])
    assert payloads("poll", "bounds", "--from", first["id"], "--exclusive", "--limit", "2") == [
        "1",
        "2",
    ]
    for since in ("1h", first["published"], "1415271879041", "0"):
        assert payloads("poll", "bounds", "--from", since, "--limit", "2") == ["0", "1"]
    assert payloads("peek", "bounds", "-n", "1") == ["2499"]
    run(agent.url, "create", "empty")
    assert payloads("peek", "empty") == []


def test_lines_of_stdin_are_messages_as_bytes(agent: Agent) -> None:
    run(agent.url, "create", "stdin")
    process = start(agent.url, "publish", "stdin", "-", "--json", text=False)
    out, _ = process.communicate(b"a\n\xff\r\n\nlast", timeout=DEADLINE)  # type: ignore[arg-type]
    assert json.loads(out) == {"topic": "default/stdin", "published": 4}
    with Topics(agent.url) as topics:
        raws = [each.raw for each in topics.poll("stdin").messages]
        assert raws == [b"a", b"\xff", b"", b"last"]


def test_a_line_is_published_while_stdin_is_open(agent: Agent) -> None:
    run(agent.url, "create", "open")
    process = start(agent.url, "publish", "open", "-")
    assert process.stdin is not None
    with Topics(agent.url) as topics:
        for count in (1, 2):
            process.stdin.write("line\n")
            process.stdin.flush()
            assert wait_until(lambda count=count: len(topics.poll("open").messages) == count)  # type: ignore[misc]
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, err) == (
        0, "2 messages are published to default/open\n", "",
    )  # fmt: skip


def test_a_bad_line_ends_publishing_and_tells_how_far_it_came(agent: Agent) -> None:
    run(agent.url, "create", "bad")
    code, out, err = run(agent.url, "publish", "bad", "-", stdin=f"a\nb\n{'x' * 1_048_577}\nc\n")
    assert (code, out) == (1, "")
    assert err == (
        "oplogctl: message 3: message: has 1,048,577 bytes, more than 1,048,576. "
        "2 messages are published\n"
    )
    code, _, err = run(agent.url, "publish", "system/oplog", '{"event":"insert","type":"t"}')
    assert (code, err) == (
        1, "oplogctl: messages[0].id: is required (HTTP 400). 0 messages are published\n",
    )  # fmt: skip
    with open(os.devnull, "rb") as nothing:
        process = start(agent.url, "publish", "bad", "-", stdin=nothing)
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (0, "0 messages are published to default/bad\n")


def test_stdin_that_cannot_be_read_is_told(agent: Agent) -> None:
    run(agent.url, "create", "unread")
    with open("/proc/self/mem", "rb") as unreadable:  # at 0, where no memory is
        process = start(agent.url, "publish", "unread", "-", stdin=unreadable)
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, err) == (
        1, "", "oplogctl: cannot read stdin: Input/output error. 0 messages are published\n",
    )  # fmt: skip


def test_follow_goes_on_after_a_restart_and_keeps_its_position(tmp_path: Path) -> None:
    port = free_port()
    url, state = f"http://127.0.0.1:{port}", str(tmp_path / "state")
    with agent_on(port, tmp_path) as agent:
        run(url, "create", "t")
        run(url, "publish", "t", "a")
        process = start(url, "follow", "t", "--from", "0", "--state-file", state, "--json")
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["payload"] == "a"
        agent.stop()
    with agent_on(port, tmp_path) as agent:
        run(url, "publish", "t", "b", "c")
        got = [json.loads(process.stdout.readline())["payload"] for _ in range(2)]
        assert got == ["b", "c"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (0, "")
        assert "trying again in" in err
        assert "Traceback" not in err
        run(url, "publish", "t", "d")
        _, out, _ = run(url, "follow", "t", "--from", "0", "--state-file", state, "-n", "1")
        assert " d [" in out
        run(url, "delete", "t")
        run(url, "create", "t")
        run(url, "publish", "t", "e")
        _, out, _ = run(url, "follow", "t", "--state-file", state, "-n", "1", "--json")
        assert [json.loads(line).get("event") for line in out.splitlines()] == ["reset", None]
        code, out, err = run(url, "poll", "t", "--from", "0" * 40)
        assert (code, err) == (0, "oplogctl: messages after this position are gone\n")
        assert " e [" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_follow_cleanly_while_it_waits(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Agent(tmp_path) as agent:
        run(agent.url, "create", "t")
        process = start(agent.url, "follow", "t")
        assert process.stderr is not None
        address = f"{agent.url}/v1/namespaces/default/topics/t/stream"
        assert process.stderr.readline() == f"oplogctl: following {address}\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out, err) == (0, "", "")


def test_ctrl_c_while_publishing_tells_how_far_it_came() -> None:
    with ScriptedServer([answer("200 OK", ""), BUSY]) as server:
        process = start(server.url, "publish", "t", "-", "--retry-for", "1h")
        assert process.stdin is not None
        for count, line in ((1, "a\n"), (2, "b\n")):
            process.stdin.write(line)
            process.stdin.flush()
            assert wait_until(lambda count=count: len(server.bodies) >= count)  # type: ignore[misc]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 1
        out, err = process.communicate(timeout=DEADLINE)
        assert out == ""
        assert err.splitlines()[-1] == "oplogctl: interrupted. 1 message is published"
        assert "Traceback" not in err


@pytest.mark.parametrize("command", ["list", "show t", "publish t x", "poll t", "peek t"])
def test_an_agent_that_is_away_is_tried_for_some_time_and_told(command: str) -> None:
    code, out, err = run("http://127.0.0.1:9", *command.split(), "--retry-for", "1s")
    assert (code, out) == (1, "")
    assert "oplogctl: " in err
    assert "connection refused: is oplogd running there?" in err.splitlines()[-1]


def test_an_agent_that_comes_back_in_time_gets_the_messages(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with agent_on(port, tmp_path) as agent:
        run(url, "create", "t")
        agent.stop()
    process = start(url, "publish", "t", "a", "--retry-for", "1h")
    assert process.stderr is not None
    assert "messages for default/t wait" in process.stderr.readline()
    with agent_on(port, tmp_path):
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (0, "1 message is published to default/t\n")
        assert err == "oplogctl: messages for default/t are delivered again\n"


def test_a_reader_that_goes_ends_it_quietly(agent: Agent) -> None:
    run(agent.url, "create", "gone")
    run(agent.url, "publish", "gone", "-", stdin="x" * 900 + "\n" + ("y" * 900 + "\n") * 999)
    for command in (("poll", "gone"), ("follow", "gone", "--from", "0")):
        process = start(agent.url, *command)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE) == 0
        assert process.stderr.read().replace("oplogctl: following ", "").count("\n") <= 1
        process.stderr.close()
        assert process.stdin is not None
        process.stdin.close()


def test_a_stdout_that_takes_nothing_is_told_in_a_sentence(agent: Agent) -> None:
    run(agent.url, "create", "full")
    run(agent.url, "publish", "full", "a")
    for command in (
        "list",
        "poll full",
        "peek full",
        "follow full --from 0 -n 1",
        "publish full b",
    ):
        with open("/dev/full", "w") as full:
            process = start(agent.url, *command.split(), stdout=full)
            _, err = process.communicate(timeout=DEADLINE)
        sentence = "oplogctl: cannot write to stdout: No space left on device"
        assert (process.returncode, err.splitlines()[-1]) == (1, sentence)
        assert "Traceback" not in err


def test_a_closed_stdout_is_told_in_a_sentence_before_a_command_does_anything(agent: Agent) -> None:
    """A fork has a stdout, so this is a new Python."""
    run(agent.url, "create", "closed")
    for command in ("list", "publish closed b"):
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m oplogc.ctl topic {command} >&-"],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env={**os.environ, "OPLOGCTL_URL": agent.url},
        )
        sentence = "oplogctl: stdout is closed: there is nowhere to write to\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)
    assert run(agent.url, "poll", "closed") == (0, "", "")


def test_a_long_publish_shows_its_progress_in_a_terminal_only(agent: Agent) -> None:
    run(agent.url, "create", "long")
    ours, its = pty.openpty()
    process = start(agent.url, "publish", "long", "-", stderr=its)
    os.close(its)
    seen: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 10_000):
                seen.append(chunk)
        except OSError:  # the other side is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    assert process.stdin is not None
    written = 0
    while not seen:
        process.stdin.write("a\n")
        process.stdin.flush()
        written += 1
    out, _ = process.communicate(timeout=DEADLINE)
    reader.join()
    os.close(ours)
    assert out == f"{written:,} messages are published to default/long\n"
    shown = b"".join(seen)
    assert re.match(rb"\r[0-9,]+ messages published", shown)
    assert shown.endswith(b"\r\x1b[K")
