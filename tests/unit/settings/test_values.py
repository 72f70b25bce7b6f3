"""The values that each flag of the agent accepts and refuses."""

from pathlib import Path
from typing import Any

import pytest

from oplog_kit.command.convert import Secret
from oplog_kit.listen import Address
from oplogd.config.command import command, parse
from oplogd.config.secret_files import SecretFile, passwords_in
from tests.kits.processes.command_lines import refusal

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30

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
    ("--max-filter-values", "1", 1),
    ("--spool-size", "1MB", 1024 * KB),
    ("--capped-collection-size", "10485760", 10 * MB),
    ("--capped-collection-size", "10MB", 10 * MB),
    ("--topics-max-bytes", "1MB", MB),
    ("--topics-max-bytes", "0", 0),
    ("--capped-collection-size", "10MiB", 10 * MB),
    ("--capped-collection-size", "64k", 64 * KB),
    ("--capped-collection-size", "1G", GB),
    ("--capped-collection-size", "4096", 4096),
    ("--capped-collection-size", "8 kb", 8 * KB),
    ("--max-body-size", "512B", 512),
    ("--object-url", "http://a/{{type}}/{{id}}", "http://a/{{type}}/{{id}}"),
    ("--object-url", "http://a/{{id}}", "http://a/{{id}}"),
    ("--password", "s3cret", (Secret("s3cret"),)),
    ("--ingest-password", " spaces stay ", (Secret(" spaces stay "),)),
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
    ("--workers", "64", 64),
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
    ("--store", ":memory:"),
    ("--store", "file::memory:"),
    ("--spool", ":memory:"),
    ("--mongo-url", "http://localhost"),
    ("--log-collection", "tailable"),
    ("--lease", "99ms"),
    ("--spool-size", "1"),
    ("--spool-size", "1023KB"),
    ("--capped-collection-size", "4095"),
    ("--capped-collection-size", "10XB"),
    ("--topics-max-bytes", "1048575"),
    ("--topics-max-bytes", "none"),
    ("--capped-collection-size", "-1"),
    ("--capped-collection-size", "4096.5"),
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
    ("--workers", "0"),
    ("--workers", "65"),
    ("--shutdown-timeout", "0"),
    ("--shutdown-timeout", "soon"),
    ("--shutdown-timeout", "nan"),
    ("--heartbeat", "0"),
    ("--heartbeat", "26s"),
    ("--max-connection-age", "-5"),
    ("--max-connection-age", "36501d"),
    ("--tombstone-retention", "1y"),
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
    from_flag = refusal(command(), capsys, [f"{name}={text}"])
    assert from_flag.startswith(f"{name}: ")
    variable = f"OPLOGD_{name[2:].replace('-', '_').upper()}"
    from_variable = refusal(command(), capsys, [], {variable: text})
    assert from_variable == from_flag.replace(f"{name}: ", f"{variable}: ", 1)


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


@pytest.mark.parametrize(
    ("content", "passwords"),
    [
        (b"abc", ["abc"]),
        (b"abc\n", ["abc"]),
        (b"abc\r\nnew\r\n", ["abc", "new"]),
        (b"abc\n\nnew\nabc", ["abc", "new"]),
        (b" a ", [" a "]),
    ],
)
def test_a_password_file_has_one_password_per_line(
    tmp_path: Path, content: bytes, passwords: list[str]
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    settings = parse(["--password-file", str(file)], {"OPLOGD_INGEST_PASSWORD_FILE": str(file)})
    for given in (settings.password, settings.ingest_password):
        (found,) = given
        assert isinstance(found, SecretFile)
        assert passwords_in(found.content) == passwords
        assert "abc" not in repr(found)


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n", b" \n\t\n", b"\xff"])
def test_a_password_file_without_a_password_is_refused(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    message = refusal(command(), capsys, ["--password-file", str(file)])
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
        ([], "localhost:8042"),
        (["--listen", ":8042"], ":8042"),
        (["--listen", "10.0.0.1:5"], "10.0.0.1:5"),
        (["--udp-listen", "off"], None),
        (["--udp-listen", ":9"], ":9"),
        (["--ingest-password", "x"], "localhost:8042"),
        (["--ingest-password", "x", "--listen", ":8042"], "127.0.0.1:8042"),
        (["--ingest-password", "x", "--listen", "10.0.0.1:0"], "127.0.0.1:0"),
        (["--ingest-password", "x", "--listen", "127.0.0.2:5"], "127.0.0.2:5"),
        (["--ingest-password", "x", "--listen", "localhost:5"], "localhost:5"),
        (["--ingest-password", "x", "--listen", "[::]:5"], "[::1]:5"),
        (["--ingest-password", "x", "--udp-listen", ":9"], ":9"),
        (["--ingest-password", "x", "--udp-listen", "off"], None),
        (["--ingest-password", ""], "localhost:8042"),
        (["--password", "x"], "localhost:8042"),
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


def test_only_linux_has_several_workers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert parse(["--workers", "1"], {}).workers == 1
    assert "--workers: only Linux shares a port" in refusal(command(), capsys, ["--workers", "2"])
