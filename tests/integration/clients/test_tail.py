"""oplog-tail as a process with a terminal, a pipe or a file."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oplogc.tail import cli as tail
from oplogc.tail.command import parse
from oplogc.tail.settings import FLAGS, TailSettings, start_position, start_time
from oplogc.terminal.values import agent_url
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.processes import forked
from tests.kits.servers.ports import free_port


def start(
    *arguments: str, environ: dict[str, str] | None = None, stdout: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    return forked.start(
        [sys.executable, "-m", "oplogc.tail", *arguments],
        env={**os.environ, "NO_COLOR": "", "TERM": "xterm", **(environ or {})},
        text=True,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def run(*arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str, str]:
    process = start(*arguments, environ=environ)
    out, err = process.communicate(timeout=DEADLINE)
    return process.returncode, out, err


def videos(numbers: Sequence[int]) -> list[dict[str, object]]:
    return [
        {"event": "insert", "type": "video", "id": str(n), "timestamp": "2014-11-06T11:04:39.041Z"}
        for n in numbers
    ]


def test_lines_for_people(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post([{**videos([1])[0], "parents": ["user/1", "\x1b[31mred"]}])
        code, out, _ = run(agent.url, "--replicate", "-n", "1")
        reset, insert = out.splitlines()
        assert (code, reset) == (0, f"{' ' * 24} reset")
        shown = r"2014-11-06T11:04:39.041Z insert video/1 in user/1, \\x1b\[31mred \[[0-9]{13}\]"
        assert re.fullmatch(shown, insert)
        _, out, _ = run(agent.url, "--replicate", "-n", "1", "--color", "always")
        assert "\x1b[32minsert\x1b[0m video/1" in out


def test_the_id_of_a_line_is_a_position_to_start_from(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        address = agent.url.removeprefix("http://")  # a scheme is not needed
        agent.post(videos([1, 2, 3]))
        lines = run(address, "--from", "0", "-q", "-n", "3")[1].splitlines()
        assert [line.split()[-2] for line in lines[1:]] == ["video/1", "video/2", "video/3"]
        process = start(agent.url, "--replicate", "-q")
        assert process.stdout is not None
        live = [process.stdout.readline() for _ in range(5)][-1]
        match = re.fullmatch(r" {24} live   \[([0-9a-f]{24})\]\n", live)
        assert match is not None
        process.terminate()
        process.communicate(timeout=DEADLINE)
        agent.post(videos([4, 5]))
        _, out, _ = run(address, "--from", match[1], "-q", "-n", "2")
        assert [line.split()[2] for line in out.splitlines()] == ["video/4", "video/5"]
        for position in ("2014-11-06T11:04:39.041Z", "1415271879041"):
            _, out, _ = run(address, "--from", position, "--json", "-q", "-n", "1")
            assert json.loads(out.splitlines()[-1])["type"] == "video"


def test_json_filters_and_password_from_the_environment(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "geheim") as agent:
        agent.post(
            [*videos([1, 2]), {"event": "insert", "type": "user", "id": "ada", "parents": ["a,b"]}]
        )
        environ = {"OPLOG_PASSWORD": "geheim", "OPLOG_URL": agent.url}
        _, out, err = run(
            "--since", "10m", "--json", "-n", "2", "--types", "video,comment", environ=environ
        )
        begin, first, second = map(json.loads, out.splitlines())
        assert begin == {"event_id": "1", "event": "reset"}  # the store is younger than ten minutes
        assert (first["event"], first["id"], second["id"], second["parents"]) == (
            "insert",
            "1",
            "2",
            [],
        )
        assert err == f"oplog-tail: following {agent.url}/ops\n"
        _, out, err = run(
            "--replicate", "--json", "-n1", "-q", "-p", "a,b", "-p", "c", environ=environ
        )
        assert json.loads(out.splitlines()[1])["id"] == "ada"
        assert err == ""
        named = ("--ids", "2,ada", "--types", "video")
        _, out, _ = run("--replicate", "--json", "-n1", "-q", *named, environ=environ)
        assert json.loads(out.splitlines()[1])["id"] == "2"
        agent.post([{"event": "delete", "type": "video", "id": "1"}])
        _, out, _ = run("--from", "1", "--json", "-n1", "-q", "--events", "Delete", environ=environ)
        shown = json.loads(out.splitlines()[0])
        assert (shown["event"], shown["id"]) == ("delete", "1")
        code, out, err = run("--password", "wrong", environ=environ)
        assert (code, out) == (1, "")
        assert err == "oplog-tail: wrong password: the agent refuses it (HTTP 401)\n"
        code, out, err = run(environ={**environ, "OPLOG_PASSWORD": ""})
        assert (code, out) == (1, "")
        assert err.startswith("oplog-tail: the agent needs a password: give --password-file")


def test_flags_can_be_variables_and_those_of_oplog_tail_come_first(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "geheim") as agent:
        agent.post([*videos([1, 2]), {"event": "insert", "type": "user", "id": "ada"}])
        environ = {
            "OPLOG_TAIL_URL": agent.url,
            "OPLOG_URL": "nowhere:1",
            "OPLOG_TAIL_PASSWORD": "geheim",
            "OPLOG_PASSWORD": "wrong",
            "OPLOG_TAIL_TYPES": "video,comment",
            "OPLOG_TAIL_REPLICATE": "yes",
            "OPLOG_TAIL_COUNT": "2",
            "OPLOG_TAIL_JSON": "1",
            "OPLOG_TAIL_QUIET": "",
        }
        code, out, err = run(environ=environ)
        assert (code, err) == (0, f"oplog-tail: following {agent.url}/ops\n")
        assert [json.loads(line).get("id") for line in out.splitlines()] == [None, "1", "2"]


def test_it_survives_a_restart_and_keeps_its_state(tmp_path: Path) -> None:
    port = free_port()
    url, state = f"http://127.0.0.1:{port}", str(tmp_path / "state")
    with agent_on(port, tmp_path) as agent:
        agent.post(videos([1]))
        process = start(url, "--replicate", "--state-file", state, "--json")
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["event"] for _ in range(3)] == [
            "reset",
            "insert",
            "live",
        ]
        agent.stop()
    with Agent(tmp_path) as elsewhere:  # these are there before it can come back
        elsewhere.post(videos([2, 3]))
    with agent_on(port, tmp_path) as agent:
        assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == ["2", "3"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (0, "")
        assert "trying again in" in err
        assert "Traceback" not in err
        agent.post(videos([4]))
        _, out, _ = run(url, "--replicate", "--state-file", state, "--json", "-n1")
        assert json.loads(out)["id"] == "4"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_while_it_waits(tmp_path: Path, number: signal.Signals) -> None:
    with Agent(tmp_path) as agent:
        process = start(agent.url)
        assert process.stderr is not None
        assert process.stderr.readline() == f"oplog-tail: following {agent.url}/ops\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out, err) == (0, "", "")


def test_a_reader_that_goes_ends_it_at_once(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(videos(range(3000)))
        waiting = start(agent.url)  # nothing will come that it could write
        agent.wait_status(clients=1)
        writing = start(agent.url, "--replicate")
        for process in (waiting, writing):
            assert process.stdout is not None
            assert process.stderr is not None
            with process.stderr:
                assert process.stderr.readline() == f"oplog-tail: following {agent.url}/ops\n"
                if process is writing:
                    process.stdout.readline()
                process.stdout.close()
                assert process.wait(DEADLINE) == 0
                assert process.stderr.read() == ""


def test_a_stdout_that_takes_nothing_is_told_in_a_sentence(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(videos(range(10)))
        command = f"{sys.executable} -m oplogc.tail {agent.url} --replicate -n 10"
        for redirection, sentence in (
            (">&-", "oplog-tail: stdout is closed: there is nowhere to write to\n"),
            (">/dev/full", "oplog-tail: cannot write to stdout: No space left on device\n"),
        ):
            done = subprocess.run(
                ["sh", "-c", f"{command} -q {redirection}"],
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)


def test_a_state_file_that_cannot_be_written_is_told_before_it_follows(tmp_path: Path) -> None:
    for path, words, wanted in (
        (tmp_path / "missing" / "state", "cannot write the state file ", 1),
        (tmp_path, "--state-file: ", 2),
    ):
        code, out, err = run("http://127.0.0.1:9", "--state-file", str(path))
        assert (code, out) == (wanted, "")
        assert err.startswith(f"oplog-tail: {words}")
    (tmp_path / "state").write_text("no position")
    code, out, err = run("http://127.0.0.1:9", "--state-file", str(tmp_path / "state"))
    assert (code, out) == (1, "")
    assert err.startswith("oplog-tail: the state file ")


def test_colour_in_a_terminal_unless_no_color_is_set(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(videos([1]))
        for no_color, coloured in (("", True), ("1", False)):
            ours, its = pty.openpty()
            process = start(
                agent.url, "--replicate", "-n1", stdout=its, environ={"NO_COLOR": no_color}
            )
            os.close(its)
            process.communicate(timeout=DEADLINE)
            shown = os.read(ours, 10_000)
            os.close(ours)
            assert (b"\x1b[32m" in shown) is coloured
            assert b"video/1" in shown


def test_the_help_names_every_flag_with_its_variable_within_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        tail.main(["--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    words = " ".join(" ".join(lines).split())
    for flag in FLAGS:
        assert f"{flag.name} {flag.metavar or ''}".strip() in words
        assert f"{flag.help} Variable: {flag.variable}." in words


@pytest.mark.parametrize(
    ("arguments", "environ", "sentence"),
    [
        (["--since", "soon"], {}, "--since: 'soon' is not a time"),
        (["--from", "soon"], {}, "--from: 'soon' is not an event id"),
        (["--from", "2026-01-31"], {}, "--from: '2026-01-31' is not an event id"),
        (["--count", "0"], {}, "--count: '0' is not a whole number of at least 1"),
        ([], {"OPLOG_TAIL_COUNT": "x"}, "OPLOG_TAIL_COUNT: 'x' is not a whole number"),
        (["--since", "1h", "--replicate"], {}, "--since and --replicate exclude each other"),
        (["--from", "0", "--since", "1h"], {}, "--from and --since exclude each other"),
        (["--shard", "8/8"], {}, "--shard: '8/8' is not a shard: give I/N"),
        ([], {"OPLOG_TAIL_SHARD": "x"}, "OPLOG_TAIL_SHARD: 'x' is not a shard"),
        (["nowhere"], {}, "'nowhere' is no address of an agent"),
        (["--frobnicate=hunter2"], {}, "unknown argument --frobnicate"),
        (["--pasword", "hunter2"], {}, "unknown argument --pasword; did you mean --password?"),
        (["--password", "--json"], {}, "--password: needs a value"),
        (["--json=1"], {}, "--json: takes no value"),
        (["one", "two"], {}, "unknown argument two"),
        (["one", "http://u:hunter2@two"], {}, "unknown argument (an address with a password)"),
        (["-qt", "--json"], {}, "-t: needs a value"),
        (["-n=x"], {}, "--count: 'x' is not a whole number"),
        (["-t", ","], {}, "--types: give names, none of them empty"),
        (["--color", "blue"], {}, "--color: 'blue' is not one of auto, always, never"),
        (["--password-file", "/no/such"], {}, "--password-file: cannot read '/no/such'"),
        (
            [],
            {"OPLOG_TAIL_PASSWROD": "hunter2"},
            "unknown variable OPLOG_TAIL_PASSWROD; did you mean OPLOG_TAIL_PASSWORD?",
        ),
    ],
)
def test_bad_settings_end_with_2_and_one_sentence(
    arguments: list[str],
    environ: dict[str, str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        tail.main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"oplog-tail: {sentence}")
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "arguments",
    [["-t", "a"], ["-ta"], ["-t=a"], ["-qt=a"], ["-qta"], ["--types", "a"], ["--types=a"]],
)
def test_the_value_of_a_short_flag_may_follow_an_equals_sign(arguments: list[str]) -> None:
    assert parse(arguments, {}).types == ("a",)


def test_a_value_after_an_equals_sign_may_look_like_a_flag() -> None:
    assert parse(["--password=--json", "-t=-q"], {"OPLOG_TAIL_PARENTS": "--json"}) == TailSettings(
        url="http://localhost:8042", types=("-q",), parents=("--json",), password="--json"
    )


def test_times_are_read_as_people_write_them() -> None:
    assert 599 < (datetime.now(UTC) - start_time("10m")).total_seconds() < 630
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text in ("2026-01-31T12:00:00Z", "2026-01-31t13:00:00+01:00", "1769860800000"):
        assert start_time(text) == moment
    assert start_position("2026-01-31t13:00:00+01:00") == moment


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8042", "http://localhost:8042"),
        ("[::1]:8042/log", "http://[::1]:8042/log"),
        ("https://agent", "https://agent"),
        ("user:secret@agent:80", "user:secret@agent:80"),
    ],
)
def test_a_host_and_port_need_no_scheme(text: str, url: str) -> None:
    assert agent_url(text) == url


def test_the_service_links_of_kubernetes_are_ignored() -> None:
    links = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT_HTTP": "80",
        "PORT": "tcp://10.0.0.1:80",
        "PORT_80_TCP": "tcp://10.0.0.1:80",
        "PORT_80_TCP_PROTO": "tcp",
        "PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert parse([], {f"OPLOG_TAIL_{name}": value for name, value in links.items()}).types == ()
    with pytest.raises(SystemExit):
        parse([], {"OPLOG_TAIL_PORT": "8042"})
