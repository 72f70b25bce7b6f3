"""Settings files are read by one set of rules, shown with the file of a relay."""

from pathlib import Path

import pytest

from oplog_kit.config.nodes import as_written
from oplog_relay.config.file import load
from tests.kits.relay.settings_file import SettingsFile

LEAST = "name: n\ndatabase: {url: 'sqlite:///a'}\n"


def test_a_null_is_no_second_value_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("sqlite:///a")
    file_ = f"url_file: {tmp_path}/url"
    for text in (f"url: , {file_}", f"{file_}, url: ", "url_file: , url: 'sqlite:///a'"):
        found = load(SettingsFile(tmp_path).write(f"name: n\ndatabase: {{{text}}}"), {})
        assert found.database.url == "sqlite:///a"


def test_no_message_repeats_the_value_of_a_variable(tmp_path: Path) -> None:
    lines = (
        ("agents: 'a${SECRET}b'", "agents.urls: 'a${SECRET}b' is no address of an agent"),
        ("agents: '$$${SECRET}'", "agents.urls: '$$${SECRET}' is no address of an agent"),
        ("metrics_listen: '${SECRET}'", "metrics_listen: '${SECRET}' is not an address"),
        ("agents: 'http://u:sEcret@h${PORT}'", "agents.urls: has a variable with an unusable"),
        (
            "agents: 'http://a:8${SECRET}'",
            "agents.urls: 'http://a:8${SECRET}' is no address of an agent",
        ),
        ("agents: {password_file: '${SECRET}'}", "password_file: cannot read '${SECRET}': No such"),
        ("agents: {password_file: '.${S:-/}'}", "password_file: cannot read '.${S:-/}': Is a dir"),
        ("agents: {ca_file: '${SECRET}'}", "agents.ca_file: cannot read '${SECRET}': No such file"),
        ("database: {table: 'a.b.${SECRET}'}", "database.table: 'a.b.${SECRET}' must be table or"),
        ("database: {table: 'a.${SECRET}.b'}", "database.table: 'a.${SECRET}.b' must be table or"),
        ("database: {columns: {id: '${LINES}'}}", "database.columns.id: has a variable with an"),
        (
            "database: {columns: {id: '${SECRET}', topic: '${SECRET}'}}",
            "database.columns.topic: has the name of the column id, too",
        ),
    )
    for line, sentence in lines:
        text = f"name: n\n{line}"
        environ = {"SECRET": "s'Ecret", "PORT": ":99999", "LINES": "a\nsEcret"}
        found = "".join(SettingsFile(tmp_path).mistakes(text, **environ))
        assert sentence in found
        assert "Ecret" not in found
    with pytest.raises(ValueError, match=r"^has a variable with an unusable value$"):
        as_written("sEcret", "a$", lambda text: text.index("$"))


def test_a_path_without_a_variable_is_shown_as_it_was_found(tmp_path: Path) -> None:
    for name in ("password_file", "ca_file"):
        found = SettingsFile(tmp_path).mistakes(f"name: n\nagents: {{{name}: ./none}}")
        assert (
            f"relay.yaml:2: agents.{name}: cannot read './none': No such file or directory" in found
        )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("agents: {password: '${BYTE}'}", "agents.password"),
        ("agents: {password: 'a${NONE:-}${BYTE:-b}'}", "agents.password"),
        ("agents: ['http://a:1', '${BYTE}']", "agents.urls"),
        ("agents: {ca_file: '${BYTE}'}", "agents.ca_file"),
        ("agents: {password_file: '${BYTE}'}", "agents.password_file"),
        ("database: {url: 'postgresql://u@h/d', password: '${BYTE}'}", "database.password"),
        (
            "database: {url: 'postgresql://u@h/d', password: \"a\\ud83d\\ude00\"}",
            "database.password",
        ),
        ("database: {url: 'sqlite:///${BYTE}'}", "database.url"),
        ("limits: {poll: '${BYTE}'}", "limits.poll"),
    ],
)
def test_a_value_that_is_not_utf8_is_refused(tmp_path: Path, text: str, path: str) -> None:
    byte = b"\xff".decode(errors="surrogateescape")
    found = SettingsFile(tmp_path).mistakes(f"name: n\n{text}", BYTE=byte)
    assert f"relay.yaml:2: {path}: is not UTF-8 text" in found


def test_a_variable_of_a_setting_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    byte = b"\xff".decode(errors="surrogateescape")
    text = "name: n\nagents: http://a:1\ndatabase: {url: 'postgresql://u@h/d', password: a}"
    for name in ("PASSWORD", "DATABASE_PASSWORD", "DATABASE_URL"):
        found = SettingsFile(tmp_path).mistakes(text, **{f"OPLOG_RELAY_{name}": byte})
        assert found == [f"OPLOG_RELAY_{name}: is not UTF-8 text"]


@pytest.mark.parametrize("null", ["", "password_file: , "])
def test_a_misspelled_setting_is_one_mistake_in_any_order(tmp_path: Path, null: str) -> None:
    (tmp_path / "pw").write_text("a")
    for wrong, right in (
        ("pasword_file: b", "password: a"),
        ("passwrod: b", f"password_file: {tmp_path}/pw"),
    ):
        meant = "password_file" if "file" in wrong else "password"
        for text in (f"{wrong}, {right}", f"{right}, {wrong}"):
            if "password_file" not in text or not null:
                text = null + text
            found = SettingsFile(tmp_path).mistakes(
                f"{LEAST}agents: {{urls: 'http://a:1', {text}}}"
            )
            name = wrong.partition(":")[0]
            assert found == [f"relay.yaml:3: agents.{name}: unknown; did you mean {meant}?"]
