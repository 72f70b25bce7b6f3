"""The command line of the agent: sources of a value, refusals and help."""

import sys

import pytest

from oplog_kit.command.convert import Secret
from oplog_kit.command.flags import flags_of
from oplogd.config.command import command, parse
from oplogd.config.settings import Settings
from tests.kits.agents.agent import DEADLINE
from tests.kits.paths import ROOT
from tests.kits.processes import forked
from tests.kits.processes.command_lines import refusal


@pytest.mark.parametrize(
    ("argv", "environ", "message"),
    [
        (["--max-clients", "x"], {}, "--max-clients: 'x' is not a whole number of at least 1"),
        (["--max-clients", "-1"], {}, "--max-clients: '-1' is not a whole number of at least 1"),
        (["--store", ""], {}, "--store: the path is empty"),
        (["--debugg"], {}, "unknown argument --debugg"),
        (["--max-cl", "5"], {}, "unknown argument --max-cl"),
        (["file"], {}, "unknown argument file"),
        (["--listen"], {}, "--listen: needs a value (--flag=VALUE if it begins with -)"),
        (["--debug=yes"], {}, "--debug: takes no value"),
        (
            [],
            {"OPLOGD_DEBUG": "maybe"},
            "OPLOGD_DEBUG: 'maybe' is neither true (1, true, yes, on) nor ",
        ),
        (
            ["--store", "a", "--mongo-url", "mongodb://b"],
            {},
            "--store and --mongo-url exclude each other",
        ),
        (
            ["--store", "a"],
            {"OPLOGD_MONGO_URL": "mongodb://b"},
            "--store and OPLOGD_MONGO_URL exclude each other",
        ),
        (
            ["--password", "a"],
            {"OPLOGD_PASSWORD_FILE": "b"},
            "--password and OPLOGD_PASSWORD_FILE exclude each other",
        ),
        (["--tls-key", __file__], {}, "--tls-key needs --tls-certificate as well"),
        (["--spool", "a"], {}, "--spool needs --mongo-url as well"),
        (
            [],
            {"OPLOGD_TLS_CERTIFICATE": __file__},
            "OPLOGD_TLS_CERTIFICATE needs --tls-key as well",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(
    argv: list[str], environ: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(command(), capsys, argv, environ).startswith(message)


@pytest.mark.parametrize(
    "argv",
    [
        ["--pasword", "hunter2"],
        ["--pasword=hunter2"],
        ["--mongo-url", "mongo://u:hunter2@db"],
        ["--mongo-url", "mongodb://u:hunter2@db", "--store", "a"],
        ["--password", "hunter2", "--password-file", "b"],
        ["mongodb://u:hunter2@db"],
        ["u:p=hunter2@db"],
    ],
)
def test_a_refusal_does_not_repeat_a_secret(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "hunter2" not in refusal(command(), capsys, argv)


@pytest.mark.parametrize(
    ("argv", "environ", "clients"),
    [
        (["--max-clients", "3"], {"OPLOGD_MAX_CLIENTS": "4"}, 3),
        (["--max-clients", "3"], {"OPLOGD_MAX_CLIENTS": "x"}, 3),
        ([], {"OPLOGD_MAX_CLIENTS": "4"}, 4),
        ([], {"OPLOGD_MAX_CLIENTS": ""}, 10_000),
        (["--max-clients", "3", "--max-clients", "5"], {}, 5),
    ],
)
def test_a_flag_wins_over_its_variable_and_that_over_the_default(
    argv: list[str], environ: dict[str, str], clients: int
) -> None:
    assert parse(argv, environ).max_clients == clients


@pytest.mark.parametrize("name", [flag.name for flag in flags_of(Settings)])
def test_an_empty_variable_is_not_set(name: str) -> None:
    assert parse([], {f"OPLOGD_{name[2:].replace('-', '_').upper()}": ""}) == Settings()


@pytest.mark.parametrize("name", ["--password", "--ingest-password", "--mongo-url", "--object-url"])
def test_an_empty_flag_that_may_be_unset_is_not_set(name: str) -> None:
    field = name[2:].replace("-", "_")
    text = "mongodb://{{id}}"
    assert parse([name, ""], {}) == Settings()
    from_variable = getattr(parse([name, ""], {f"OPLOGD_{field.upper()}": text}), field)
    assert from_variable in (text, Secret(text), (Secret(text),))


@pytest.mark.parametrize("text", ["\n", "\r\n", "\n\n"])
def test_a_variable_of_blank_lines_is_no_missing_password(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(command(), capsys, [], {"OPLOGD_PASSWORD": text})
    assert message.startswith("OPLOGD_PASSWORD: has blank lines only")


def test_a_variable_has_one_password_per_line() -> None:
    found = parse([], {"OPLOGD_PASSWORD": "one\r\ntwo\x0cthree\n\n"}).password
    assert found == (Secret("one"), Secret("two\x0cthree"))
    assert parse(["--password", "", "--password", "x"], {}).password == (Secret("x"),)


@pytest.mark.parametrize("value", ["-1", "-.5", "- a", "-", "-a b"])
def test_a_value_that_no_flag_looks_like_may_begin_with_a_minus(value: str) -> None:
    assert parse(["--password", value], {}).password == (Secret(value),)


def test_a_switch_is_on_when_given() -> None:
    settings = parse(["--debug", "--new-epoch"], {"OPLOGD_DEBUG": "0"})
    assert (settings.debug, settings.new_epoch) == (True, True)


def test_help_names_every_flag_with_default_and_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit_:
        parse(["--help"], {"OPLOGD_MAX_CLIENTS": "not read for help"})
    assert exit_.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    for flag in flags_of(Settings):
        metavar = "" if flag.metavar is None else f" {flag.metavar}"
        assert f"{flag.name}{metavar} {flag.help}" in words
        default = f"Default: {flag.default}. " if flag.metavar and flag.default else ""
        assert f"{default}Variable: {flag.variable}." in words


def test_version_is_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(["--version"], {})
    assert exit_.value.code == 0
    assert capsys.readouterr().out == "oplogd 0.1.0\n"


def test_a_process_with_a_bad_value_ends_with_2_and_one_sentence() -> None:
    script = (
        "import os, sys; from oplogd.config.command import parse; parse(sys.argv[1:], os.environ)"
    )
    ended = forked.run(
        [sys.executable, "-c", script, "--ring-size", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == "oplogd: --ring-size: '2' is not a whole number of at least 16\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--password", "--debug"], "--password: needs a value (--flag=VALUE if it begins with -)"),
        (["--pasword", "x"], "unknown argument --pasword; did you mean --password?"),
        (["--debug", "--", "x=hunter2"], "unknown argument x"),
        (["-phunter2"], "unknown argument -p"),
    ],
)
def test_a_misspelt_or_missing_part_is_named(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(command(), capsys, argv) == message


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"OPLOGD_PASSWROD": "hunter2"},
            "unknown variable OPLOGD_PASSWROD; did you mean OPLOGD_PASSWORD?",
        ),
        ({"OPLOGD_FROBNICATE": "1"}, "unknown variable OPLOGD_FROBNICATE"),
        ({"OPLOGD_": "1"}, "unknown variable OPLOGD_"),
        ({"OPLOGD_PORT": "8042"}, "unknown variable OPLOGD_PORT"),
        (
            {"OPLOGD_LISTEN_PORT": "8042"},
            "unknown variable OPLOGD_LISTEN_PORT; did you mean OPLOGD_LISTEN?",
        ),
        ({"OPLOGD_SERVICE_HOST": "oplog.example.com"}, "unknown variable OPLOGD_SERVICE_HOST"),
        ({"OPLOGD_PORT_8042_TCP_NAME": "x"}, "unknown variable OPLOGD_PORT_8042_TCP_NAME"),
    ],
)
def test_an_unknown_variable_is_named_with_the_one_that_is_near(
    environ: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(command(), capsys, [], environ) == message


@pytest.mark.parametrize("service", ["OPLOGD", "OPLOGD_STREAM"])
def test_the_service_links_of_kubernetes_do_not_stop_an_agent(service: str) -> None:
    # Of a Service with two named ports, one of them over UDP; with IPv4 and with IPv6.
    for address in ("10.0.171.239", "fd00::1"):
        environ = {
            f"{service}_SERVICE_HOST": address,
            f"{service}_SERVICE_PORT": "8042",
            f"{service}_SERVICE_PORT_HTTP": "8042",
            f"{service}_PORT": f"tcp://{address}:8042",
        }
        for protocol in ("TCP", "UDP"):
            port = f"{service}_PORT_8042_{protocol}"
            environ[port] = f"{protocol.lower()}://{address}:8042"
            environ[f"{port}_PROTO"] = protocol.lower()
            environ[f"{port}_PORT"] = "8042"
            environ[f"{port}_ADDR"] = address
        assert parse([], environ) == Settings()


def test_other_programs_and_the_completion_keep_their_variables() -> None:
    environ = {"OPLOG_URL": "x", "OPLOG_SYNC_STORE": "x", "_OPLOGD_COMPLETE": "", "OPLOGD_X": ""}
    assert parse([], environ) == Settings()


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_grouped_by_subject_within_80_columns(
    flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        parse([flag], {"OPLOGD_PASSWROD": "not read for help"})
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    subjects = [line[:-1] for line in lines if line.endswith(":") and line[0] != " "]
    assert subjects == [*dict.fromkeys(flag.subject for flag in flags_of(Settings)), "Help"]
    broken = [line for line in lines if line.endswith("-") or line.lstrip() == "--"]
    assert broken == []
