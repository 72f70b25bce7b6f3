"""The command line of oplog-sync: its settings, their sources and refusals."""

from pathlib import Path

import pytest

from oplog_kit.command.flags import flags_of
from oplog_sync.guard import Limit
from oplog_sync.settings import JobSettings, command
from tests.kits.processes.command_lines import refusal

URL = "mongodb://user:hunter2@db/oplog"


def test_the_defaults_are_those_of_the_reference() -> None:
    settings = command().parse(["dump.jsonl"], {})
    assert settings == JobSettings(arguments=("dump.jsonl",))
    assert (settings.store, settings.format, settings.types) == ("oplog.db", "json", frozenset())
    assert (settings.max_deletes, settings.max_changes) == (Limit(20, True), Limit(60, True))
    assert (settings.create, settings.dry_run, settings.max_rate) == (False, False, None)


def test_the_url_of_mongodb_comes_from_a_flag_a_variable_or_a_file_and_is_not_shown(
    tmp_path: Path,
) -> None:
    file = tmp_path / "url"
    file.write_text(f"{URL}\n")
    for argv, environ in (
        (["--mongo-url", URL, "-"], {}),
        (["-"], {"OPLOG_SYNC_MONGO_URL": URL}),
        (["--mongo-url-file", str(file), "-"], {}),
        (["-"], {"OPLOG_SYNC_MONGO_URL_FILE": str(file)}),
    ):
        settings = command().parse(argv, environ)
        assert settings.store == URL
        assert "hunter2" not in repr(settings)


def test_every_setting_can_be_a_variable_and_options_are_one_per_line() -> None:
    environ = {
        "OPLOG_SYNC_STORE": "a.db",
        "OPLOG_SYNC_CREATE": "yes",
        "OPLOG_SYNC_FORMAT": "csv",
        "OPLOG_SYNC_OPTION": 'sep=;\nescape="',
        "OPLOG_SYNC_TYPES": "Video, user",
        "OPLOG_SYNC_MAX_DELETES": "5",
        "OPLOG_SYNC_CAPPED_COLLECTION_SIZE": "1MB",
        "OPLOGD_STORE": "of the agent",
    }
    settings = command().parse(["dump"], environ)
    assert (settings.store, settings.create, settings.format) == ("a.db", True, "csv")
    assert settings.options == (("sep", ";"), ("escape", '"'))
    assert settings.types == {"video", "user"}
    assert settings.max_deletes == Limit(5, False)
    assert settings.new_log == (1 << 20, "capped")
    by_flags = command().parse(
        ["--option", "sep=;", '--option=escape="', "--format", "csv", "dump"], {}
    )
    assert by_flags.options == settings.options


@pytest.mark.parametrize(
    ("argv", "environ", "message"),
    [
        (["--store", "a", "-"], {"OPLOG_SYNC_MONGO_URL": URL}, "--store and OPLOG_SYNC_MONGO_URL"),
        (["-"], {"OPLOG_SYNC_MONGO_URL": "hunter2"}, "OPLOG_SYNC_MONGO_URL: the URL must begin"),
        (["-"], {"OPLOG_SYNC_STOER": "a"}, "unknown variable OPLOG_SYNC_STOER; did you mean"),
        (["-"], {"OPLOG_SYNC_FORCE": "perhaps"}, "OPLOG_SYNC_FORCE: 'perhaps' is neither true"),
        (["--option", "hunter2", "-"], {}, "--option: must be NAME=VALUE"),
        (["--max-rate", "0", "-"], {}, "--max-rate: '0' is not a whole number of at least 1"),
    ],
)
def test_a_bad_setting_is_one_sentence_without_a_secret(
    argv: list[str],
    environ: dict[str, str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentence = refusal(command(), capsys, argv, environ)
    assert sentence.startswith(message)
    assert "hunter2" not in sentence


def test_a_file_without_a_url_is_named_without_its_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "url"
    file.write_text("user:hunter2@db")
    sentence = refusal(command(), capsys, ["--mongo-url-file", str(file), "-"])
    assert sentence == (
        f"--mongo-url-file: {str(file)!r}: the URL must begin with mongodb:// or mongodb+srv://"
    )


def test_help_names_every_flag_with_its_variable_within_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        command().parse(["--help"], {})
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    words = " ".join(" ".join(lines).split())
    for flag in flags_of(JobSettings):
        assert f"{flag.name} {flag.metavar or ''}".strip() + f" {flag.help}" in words
        assert f"Variable: {flag.variable}." in words


def test_an_empty_url_does_not_choose_the_default_store(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentence = refusal(command(), capsys, ["--mongo-url", "", "-"])
    assert sentence == "--mongo-url: the URL must begin with mongodb:// or mongodb+srv://"
