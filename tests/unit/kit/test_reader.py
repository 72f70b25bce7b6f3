"""Settings files are read by one set of rules, shown with the file of a relay."""

from pathlib import Path

import pytest

from oplog_kit.config.nodes import as_written
from oplog_relay.config.file import load
from tests.kits.relay.settings_file import SettingsFile


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
    )
    for line, sentence in lines:
        text = f"name: n\n{line}"
        found = "".join(SettingsFile(tmp_path).mistakes(text, SECRET="s'Ecret", PORT=":99999"))
        assert sentence in found
        assert "Ecret" not in found
    with pytest.raises(ValueError, match=r"^has a variable with an unusable value$"):
        as_written("sEcret", "a$", lambda text: text.index("$"))
