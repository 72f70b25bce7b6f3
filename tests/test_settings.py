import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oplogd.command_line import parse
from oplogd.settings import Settings, flag_table
from oplogd.values import Address, Secret

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


def refusal(
    capsys: pytest.CaptureFixture[str], argv: list[str], environ: dict[str, str] | None = None
) -> str:
    """The sentence `parse` refuses with, after checking that it is all it says."""
    with pytest.raises(SystemExit) as exit_:
        parse(argv, environ or {})
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("oplogd: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err.removeprefix("oplogd: ").rstrip("\n")


def test_defaults_are_those_of_the_documentation() -> None:
    settings = parse([], {})
    assert settings == Settings()
    assert dataclasses.asdict(settings) == {
        "listen": {"host": "", "port": 8042},
        "udp_listen": None,
        "store": Path("oplog.db"),
        "mongo_url": None,
        "log_collection": "capped",
        "lease": 5.0,
        "spool": None,
        "spool_size": GB,
        "capped_collection_size": None,
        "object_url": None,
        "password": None,
        "ingest_password": None,
        "allowed_hosts": None,
        "max_queued_events": 100_000,
        "max_queued_bytes": 64 * MB,
        "max_body_size": 16 * MB,
        "max_upload_memory": 64 * MB,
        "max_header_size": 64 * KB,
        "header_timeout": 10.0,
        "body_timeout": 30.0,
        "max_clients": 10_000,
        "max_clients_per_address": 0,
        "ring_size": 65_536,
        "ring_bytes": 64 * MB,
        "shutdown_timeout": 30.0,
        "heartbeat": 20.0,
        "max_connection_age": 0.0,
        "stall_timeout": 300.0,
        "tombstone_retention": 0.0,
        "new_epoch": False,
        "debug": False,
        "log_format": "text",
        "tls_certificate": None,
        "tls_key": None,
    }


def test_every_field_has_the_flag_and_the_variable_of_its_name() -> None:
    names = [flag.name for flag in flag_table()]
    for field in dataclasses.fields(Settings):
        assert f"--{field.name.replace('_', '-')}" in names
    assert set(names) - {
        f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Settings)
    } == {
        "--password-file",
        "--ingest-password-file",
    }
    for flag in flag_table():
        assert flag.variable == f"OPLOGD_{flag.name[2:].replace('-', '_').upper()}"


GOOD: list[tuple[str, str, Any]] = [
    ("--listen", ":8042", Address("", 8042)),
    ("--listen", "localhost:80", Address("localhost", 80)),
    ("--listen", "0.0.0.0:0", Address("0.0.0.0", 0)),
    ("--listen", "[::1]:65535", Address("::1", 65535)),
    ("--listen", "[fe80::1%eth0]:1", Address("fe80::1%eth0", 1)),
    ("--udp-listen", "off", "off"),
    ("--udp-listen", "OFF", "off"),
    ("--udp-listen", ":9", Address("", 9)),
    ("--store", "/var/lib/oplog/log.db", Path("/var/lib/oplog/log.db")),
    ("--mongo-url", "mongodb://u:p@db/oplog", Secret("mongodb://u:p@db/oplog")),
    ("--mongo-url", "mongodb+srv://db/oplog", Secret("mongodb+srv://db/oplog")),
    ("--log-collection", "plain", "plain"),
    ("--lease", "100ms", 0.1),
    ("--max-upload-memory", "64KB", 64 * KB),
    ("--max-header-size", "1KB", KB),
    ("--header-timeout", "500ms", 0.5),
    ("--body-timeout", "2m", 120.0),
    ("--max-clients-per-address", "0", 0),
    ("--spool-size", "1MB", 1024 * KB),
    ("--capped-collection-size", "10485760", 10 * MB),
    ("--capped-collection-size", "10MB", 10 * MB),
    ("--capped-collection-size", "10MiB", 10 * MB),
    ("--capped-collection-size", "64k", 64 * KB),
    ("--capped-collection-size", "1G", GB),
    ("--capped-collection-size", "4096", 4096),
    ("--capped-collection-size", "8 kb", 8 * KB),
    ("--max-body-size", "512B", 512),
    ("--object-url", "http://a/{{type}}/{{id}}", "http://a/{{type}}/{{id}}"),
    ("--object-url", "http://a/{{id}}", "http://a/{{id}}"),
    ("--password", "s3cret", Secret("s3cret")),
    ("--ingest-password", " spaces stay ", Secret(" spaces stay ")),
    ("--allowed-hosts", "oplog", frozenset({"oplog"})),
    (
        "--allowed-hosts",
        "Oplog.Example.com., a_b ,,oplog",
        frozenset({"oplog.example.com", "a_b", "oplog"}),
    ),
    ("--max-queued-events", "1", 1),
    ("--max-queued-bytes", "64KB", 64 * KB),
    ("--max-clients", "1", 1),
    ("--ring-size", "16", 16),
    ("--ring-bytes", "1MB", MB),
    ("--shutdown-timeout", "30", 30.0),
    ("--shutdown-timeout", "500ms", 0.5),
    ("--shutdown-timeout", "1.5s", 1.5),
    ("--heartbeat", "25s", 25.0),
    ("--heartbeat", "1ms", 0.001),
    ("--max-connection-age", "0", 0.0),
    ("--max-connection-age", "10m", 600.0),
    ("--max-connection-age", "12h", 43_200.0),
    ("--tombstone-retention", "30d", 2_592_000.0),
    ("--log-format", "json", "json"),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_a_value_reads_alike_from_flag_and_variable(name: str, text: str, value: Any) -> None:
    field = name[2:].replace("-", "_")
    assert getattr(parse([name, text], {}), field) == value
    assert getattr(parse([f"{name}={text}"], {}), field) == value
    assert getattr(parse([], {f"OPLOGD_{field.upper()}": text}), field) == value


BAD = [
    ("--listen", "8042"),
    ("--listen", "::1:8042"),
    ("--listen", "[localhost]:1"),
    ("--listen", ":65536"),
    ("--listen", ":-1"),
    ("--listen", "http://localhost:1"),
    ("--listen", "a b:1"),
    ("--listen", "off"),
    ("--udp-listen", "on"),
    ("--mongo-url", "http://localhost"),
    ("--log-collection", "tailable"),
    ("--lease", "99ms"),
    ("--spool-size", "1"),
    ("--spool-size", "1023KB"),
    ("--capped-collection-size", "4095"),
    ("--capped-collection-size", "10XB"),
    ("--capped-collection-size", "-1"),
    ("--capped-collection-size", "1.5M"),
    ("--capped-collection-size", "9999999999T"),
    ("--object-url", "http://a/{{type}}"),
    ("--allowed-hosts", "*"),
    ("--allowed-hosts", "oplog,*.example.com"),
    ("--allowed-hosts", "http://oplog"),
    ("--allowed-hosts", "oplog:8042"),
    ("--allowed-hosts", "bücher.example"),
    ("--max-queued-events", "0"),
    ("--max-queued-events", "-1"),
    ("--max-queued-events", "1e6"),
    ("--max-queued-events", "9" * 5000),
    ("--max-queued-bytes", "63KB"),
    ("--max-body-size", "0"),
    ("--max-clients", "x"),
    ("--max-clients", "٣"),
    ("--ring-size", "15"),
    ("--ring-bytes", "1"),
    ("--shutdown-timeout", "0"),
    ("--shutdown-timeout", "soon"),
    ("--shutdown-timeout", "nan"),
    ("--heartbeat", "0"),
    ("--heartbeat", "26s"),
    ("--max-connection-age", "-5"),
    ("--max-connection-age", "36501d"),
    ("--tombstone-retention", "1w"),
    ("--log-format", "xml"),
    ("--tls-certificate", "/does/not/exist"),
    ("--tls-key", "/"),
    ("--password-file", "/does/not/exist"),
    ("--ingest-password-file", "/"),
]


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_value_is_one_sentence_with_the_flag_or_the_variable_it_came_from(
    name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from_flag = refusal(capsys, [f"{name}={text}"])
    assert from_flag.startswith(f"{name}: ")
    variable = f"OPLOGD_{name[2:].replace('-', '_').upper()}"
    from_variable = refusal(capsys, [], {variable: text})
    assert from_variable == from_flag.replace(f"{name}: ", f"{variable}: ", 1)


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
    assert refusal(capsys, argv, environ).startswith(message)


@pytest.mark.parametrize(
    "argv",
    [
        ["--pasword", "hunter2"],
        ["--pasword=hunter2"],
        ["--mongo-url", "mongo://u:hunter2@db"],
        ["--mongo-url", "mongodb://u:hunter2@db", "--store", "a"],
        ["--password", "hunter2", "--password-file", "b"],
    ],
)
def test_a_refusal_does_not_repeat_a_secret(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "hunter2" not in refusal(capsys, argv)


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


@pytest.mark.parametrize("name", [flag.name for flag in flag_table()])
def test_an_empty_variable_is_not_set(name: str) -> None:
    assert parse([], {f"OPLOGD_{name[2:].replace('-', '_').upper()}": ""}) == Settings()


@pytest.mark.parametrize("name", ["--password", "--ingest-password", "--mongo-url", "--object-url"])
def test_an_empty_flag_that_may_be_unset_is_not_set(name: str) -> None:
    field = name[2:].replace("-", "_")
    text = "mongodb://{{id}}"
    assert parse([name, ""], {}) == Settings()
    from_variable = getattr(parse([name, ""], {f"OPLOGD_{field.upper()}": text}), field)
    assert from_variable in (text, Secret(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True),
        ("true", True),
        ("YES", True),
        ("on", True),
        ("0", False),
        ("False", False),
        ("no", False),
        ("off", False),
        ("", False),
    ],
)
def test_a_switch_reads_words_from_its_variable(text: str, value: bool) -> None:
    settings = parse([], {"OPLOGD_DEBUG": text, "OPLOGD_NEW_EPOCH": text})
    assert (settings.debug, settings.new_epoch) == (value, value)


def test_a_switch_is_on_when_given() -> None:
    settings = parse(["--debug", "--new-epoch"], {"OPLOGD_DEBUG": "0"})
    assert (settings.debug, settings.new_epoch) == (True, True)


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"abc", "abc"),
        (b"abc\n", "abc"),
        (b"abc\r\n", "abc"),
        (b"abc\n\n", "abc\n"),
        (b" a ", " a "),
    ],
)
def test_a_password_file_loses_one_newline(tmp_path: Path, content: bytes, password: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    settings = parse(["--password-file", str(file)], {"OPLOGD_INGEST_PASSWORD_FILE": str(file)})
    assert settings.password == settings.ingest_password == Secret(password)


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n", b"\xff"])
def test_a_password_file_without_a_password_is_refused(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    message = refusal(capsys, ["--password-file", str(file)])
    assert message.startswith(f"--password-file: {str(file)!r} is ")


def test_tls_takes_two_readable_files(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert", tmp_path / "key"
    certificate.touch()
    key.touch()
    settings = parse(["--tls-certificate", str(certificate)], {"OPLOGD_TLS_KEY": str(key)})
    assert (settings.tls_certificate, settings.tls_key) == (certificate, key)


@pytest.mark.parametrize(
    ("argv", "address"),
    [
        ([], ":8042"),
        (["--listen", "10.0.0.1:5"], "10.0.0.1:5"),
        (["--udp-listen", "off"], None),
        (["--udp-listen", ":9"], ":9"),
        (["--ingest-password", "x"], "127.0.0.1:8042"),
        (["--ingest-password", "x", "--listen", "10.0.0.1:0"], "127.0.0.1:0"),
        (["--ingest-password", "x", "--listen", "127.0.0.2:5"], "127.0.0.2:5"),
        (["--ingest-password", "x", "--listen", "localhost:5"], "localhost:5"),
        (["--ingest-password", "x", "--listen", "[::]:5"], "[::1]:5"),
        (["--ingest-password", "x", "--udp-listen", ":9"], ":9"),
        (["--ingest-password", "x", "--udp-listen", "off"], None),
        (["--ingest-password", ""], ":8042"),
        (["--password", "x"], ":8042"),
    ],
)
def test_udp_shares_the_address_unless_a_password_guards_http(
    argv: list[str], address: str | None
) -> None:
    udp = parse(argv, {}).udp_address
    assert (None if udp is None else str(udp)) == address


@pytest.mark.parametrize("text", [":8042", "localhost:80", "[::1]:0"])
def test_an_address_prints_as_it_is_given(text: str) -> None:
    assert str(parse(["--listen", text], {}).listen) == text


def test_secrets_do_not_show() -> None:
    settings = parse(
        [
            "--password",
            "hunter2",
            "--ingest-password",
            "hunter2",
            "--mongo-url",
            "mongodb://u:hunter2@db",
        ],
        {},
    )
    assert settings.password is not None
    for shown in (
        repr(settings),
        str(settings),
        f"{settings.password}",
        f"{settings.password!r:>9}",
    ):
        assert "hunter2" not in shown
        assert "***" in shown
    assert settings.password.reveal() == "hunter2"


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse([], {}).debug = True  # type: ignore[misc]


def test_help_names_every_flag_with_default_and_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit_:
        parse(["--help"], {"OPLOGD_MAX_CLIENTS": "not read for help"})
    assert exit_.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    for flag in flag_table():
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
        "import os, sys; from oplogd.command_line import parse; parse(sys.argv[1:], os.environ)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, "--ring-size", "2"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == "oplogd: --ring-size: '2' is not a whole number of at least 16\n"
