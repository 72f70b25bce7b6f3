"""Flags, variables, files and the help of oplogctl."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oplogc.ctl import cli
from oplogc.ctl.options.flags import VARIABLES
from tests.integration.clients.oplogctl.oplogctl import run
from tests.kits.agents.agent import Agent

COMMANDS = ("create", "update", "list", "show", "delete", "publish", "poll", "peek", "follow")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def test_passwords_come_from_files_and_variables(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("geheim-read\n")
    (tmp_path / "write").write_text("geheim-write\n")
    flags = ("--password", "geheim-read", "--ingest-password", "geheim-write")
    files = (
        "--password-file", str(tmp_path / "read"),
        "--ingest-password-file", str(tmp_path / "write"),
    )  # fmt: skip
    variables = {"OPLOGCTL_PASSWORD": "geheim-read", "OPLOGCTL_INGEST_PASSWORD": "geheim-write"}
    with Agent(tmp_path, *flags) as agent:
        assert run(agent.url, "create", "t", *files)[0] == 0
        assert run(agent.url, "publish", "t", "a", environ=variables)[0] == 0
        assert run(agent.url, "show", "t", environ={"OPLOG_PASSWORD": "geheim-read"})[0] == 0
        with_password = agent.url.replace("//", "//any:geheim-read@")
        assert " a [" in run(with_password, "poll", "t")[1]
        missing = "oplogctl: the agent needs a password: give --{0}-file or OPLOGCTL_{1} (HTTP 401)"
        wrong = "oplogctl: wrong password: the agent refuses it (HTTP 401)"
        for arguments, environ, sentence in (
            (("poll", "t"), {}, missing.format("password", "PASSWORD")),
            (("follow", "t"), {}, missing.format("password", "PASSWORD")),
            (("create", "u"), {}, missing.format("ingest-password", "INGEST_PASSWORD")),
            (("create", "u"), {"OPLOGCTL_PASSWORD": "geheim-x"}, wrong),
            (("publish", "t", "a"), {"OPLOGCTL_INGEST_PASSWORD": "geheim-x"}, wrong),
            (("list",), {"OPLOGCTL_PASSWORD": "geheim-x"}, wrong),
        ):
            code, out, err = run(agent.url, *arguments, environ=environ)
            assert (code, out) == (1, "")
            assert err.splitlines()[-1].startswith(sentence)
        code, _, err = run(with_password.replace("read", "x"), "list")
        assert (code, err.splitlines()[-1], "geheim" in err) == (1, wrong, False)
        code, _, err = run(agent.url, "show", "t", *files, environ=variables)
        assert (code, err) == (
            2, "oplogctl: OPLOGCTL_PASSWORD and --password-file exclude each other\n",
        )  # fmt: skip


def test_the_help_names_every_flag_with_its_variable_within_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    helps = {}
    for words in ([], ["topic"], *(["topic", name] for name in COMMANDS)):
        assert cli.main([*words, "--help"]) == 0
        helps[" ".join(words)] = capsys.readouterr().out
    for text in helps.values():
        assert [line for line in text.splitlines() if len(line) > 80] == []
    for name in COMMANDS:
        assert f"\n  {name} " in helps["topic"]
        text = " ".join(helps[f"topic {name}"].split())
        for flag in ("--url URL", "--password-file PATH", "--ingest-password-file PATH", "--json"):
            assert flag in text
        for variable in VARIABLES:
            assert variable in text
    assert "Exit codes: 0 done" in helps[""]


@pytest.mark.parametrize(
    ("arguments", "environ", "sentence"),
    [
        (["topic", "create"], {}, "TOPIC: is missing"),
        (["topic", "create", "a/b/c"], {}, "TOPIC: 'a/b/c' is not a topic"),
        (["topic", "list", "a/b"], {}, "[NAMESPACE]: 'a/b' is not a namespace"),
        (["topic", "create", "t", "--ttl", "soon"], {}, "--ttl: 'soon' is not a duration"),
        (["topic", "create", "t", "--ttl", "0"], {}, "--ttl: '0' is not between"),
        (["topic", "create", "t", "u"], {}, "unknown argument u"),
        (["topic", "create", "t", "http://u:hunter2@h"], {}, "unknown argument (an address"),
        (["topic", "update", "t"], {}, "--ttl: is missing"),
        (["topic", "poll", "t", "--from", "x"], {}, "--from: 'x' is neither an id"),
        (["topic", "poll", "t", "--from", "2026-01-31"], {}, "--from: '2026-01-31' is neither"),
        (["topic", "poll", "t", "--limit", "0"], {}, "--limit: '0' is not a whole number"),
        (["topic", "peek", "t", "-n", "x"], {}, "--count: 'x' is not a whole number"),
        (["topic", "poll", "t", "--shard", "8/8"], {}, "--shard: '8/8' is not a shard: give I/N"),
        (["topic", "peek", "t", "--shard", "3"], {}, "--shard: '3' is not a shard"),
        (["topic", "follow", "t", "--shard="], {}, "--shard: '' is not a shard"),
        (["topic", "publish", "t"], {}, "give messages, or - alone"),
        (["topic", "publish", "t", "a", "-"], {}, "give messages, or - alone"),
        (["topic", "publish", "t", "a", "--header", "x"], {}, "--header: 'x' is not NAME=VALUE"),
        (["topic", "publish", "t", "a", "--key", "\udcff"], {}, r"--key: '\udcff' is not UTF-8"),
        (
            ["topic", "publish", "t", "a", "--header", "a=\udcff"],
            {},
            r"--header: 'a=\udcff' is not UTF-8",
        ),
        (["topic", "publish", "t", "a", "--key", "--json"], {}, "--key: needs a value"),
        (["topic", "publish", "t", "a", "--key"], {}, "--key: needs a value"),
        (["topic", "publish", "t", "a", "--key", "k" * 1025], {}, "--key: is longer than 1,024"),
        (["topic", "list", "--jsno"], {}, "no such option '--jsno'"),
        (["topic", "list", "--frobnicate=hunter2"], {}, "no such option '--frobnicate'"),
        (["topic", "lits"], {}, "no such command 'lits'"),
        (["topci"], {}, "no such command 'topci'"),
        (["topic", "list", "--url", "http://u:hunter2@h:port"], {}, "(an address with a password)"),
        (["topic", "list", "--url", "gopher://h"], {}, "'gopher://h' is no address of an agent"),
        (["topic", "list", "--proxy", "gopher://u:hunter2@h"], {}, "(an address with a password)"),
        (["topic", "list", "--password-file", "/no/such"], {}, "--password-file: cannot read"),
        (["topic", "list"], {"OPLOGCTL_RETRY_FOR": "x"}, "OPLOGCTL_RETRY_FOR: 'x' is not a dur"),
        (["topic", "list"], {"OPLOG_URL": "gopher://h"}, "'gopher://h' is no address"),
        (["status"], {"OPLOG_URL": "http://a:1,http://b:1"}, "OPLOG_URL: takes one address"),
        (["status", "--url", "a:1, b:1"], {}, "--url: takes one address"),
        (["status", "--url", "http://a https://x:hunter2@b"], {}, "--url: takes one address"),
        (["status", "--url", "http://:hunter2,b:1@h:port"], {}, "(an address with a password)"),
        (
            ["topic", "list"],
            {"OPLOGCTL_PASSWROD": "hunter2"},
            "unknown variable OPLOGCTL_PASSWROD; did you mean OPLOGCTL_PASSWORD?",
        ),
        (["topic", "follow", "t", "--state-file", "/"], {}, "--state-file: '/' is a folder"),
        (["topic", "follow", "t", "--from", "a" * 24], {}, "'aaaaaaaaaaaaaaaaaaaaaaaa' is neither"),
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
    assert cli.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"oplogctl: {sentence}")
    assert "hunter2" not in line


def test_an_empty_variable_is_not_set(agent: Agent) -> None:
    empty = dict.fromkeys(("OPLOGCTL_PASSWORD_FILE", "OPLOGCTL_RETRY_FOR", "OPLOGCTL_PROXY"), "")
    environ = {**empty, "OPLOGCTL_URL": "", "OPLOG_URL": agent.url}
    assert run("", "list", "system", environ=environ)[0] == 0
