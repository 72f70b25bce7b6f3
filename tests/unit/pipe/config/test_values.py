"""Short forms of values: a list of one, variables with a default, a second name of a type."""

from pathlib import Path

import pytest

from oplog_pipe.config import load, shown
from oplog_pipe.folder.fingerprint import fingerprints
from oplog_pipe.model.settings import FetchStep, FunctionStep
from tests.kits.pipe.settings_file import HEAD, LEAST, SettingsFile, sinks


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path)


def test_a_text_stands_for_a_list_of_one(file: SettingsFile) -> None:
    text = """
dir: d
sources: [{agents: http://a:1}]
sinks:
  - name: s
    type: elasticsearch
    urls: http://h:9200
    transforms: shape:video
  - {name: t, type: file, path: t, transforms: fetch}
  - {name: u, type: file, path: u, transforms: {fetch: {hosts: h}, namespace: ^a$}}
"""
    settings = load(file.write(text), {})
    search, plain, chosen = settings.sinks
    assert settings.sources[0].agents == ("http://a:1",)
    assert search.options.urls == ("http://h:9200",)  # type: ignore[attr-defined]
    assert search.transforms == (FunctionStep("shape:video"),)
    assert plain.transforms == (FetchStep(),)
    assert chosen.transforms == (FetchStep("^a$", hosts=("h",)),)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${X:-other}", "other"),
        ("${X:-}y", "y"),
        ("a${X:-b c: d}e", "ab c: de"),
        ("${X:-$$5}", "$5"),
        ("${X:-{a$}}", "{a}"),
        ("${X:-a:-b}", "a:-b"),
        ("${EMPTY:-other}", "other"),
        ("${SET:-other}", "set"),
        ("${SET:-other}-${X:-1}$$", "set-1$"),
    ],
)
def test_a_variable_that_is_not_set_or_empty_has_its_default(
    file: SettingsFile, written: str, value: str
) -> None:
    text = sinks(f"name: n, type: 'm:C', options: {{key: '{written}'}}")
    (sink,) = load(file.write(text), {"SET": "set", "EMPTY": ""}).sinks
    assert sink.options.options == {"key": value}  # type: ignore[attr-defined]


@pytest.mark.parametrize("written", ["${X:-a", "${X:-a$b}", "${X:-${Y}}", "${X-a}", "${X:a}"])
def test_a_default_that_cannot_be_read_is_told_with_the_rule(
    file: SettingsFile, written: str
) -> None:
    (found,) = file.mistakes(LEAST + f"listen: '{written}'\n")
    assert found.startswith(
        "pipe.yaml:4: listen: a variable is written ${NAME} or ${NAME:-default}"
    )


def test_no_default_of_a_secret_is_shown(file: SettingsFile) -> None:
    text = sinks(
        "name: a, type: postgres, url: 'postgresql://u:${PW:-sEcret}@h/d'",
        "name: b, type: http, url: '${HOOK:-https://h/sEcret}', headers: {X: '${X:-sEcret}'}",
        "name: c, type: oplog, agents: http://h, password: '${PW:-sEcret}'",
    )
    settings = load(file.write(text), {})
    assert settings.sinks[2].options.password == "sEcret"  # type: ignore[attr-defined]
    assert "sEcret" not in shown(settings) + repr(settings)


def test_opensearch_is_the_same_type_as_elasticsearch(file: SettingsFile) -> None:
    text = HEAD + "sinks: [{name: s, type: TYPE, urls: ['http://h:9200']}]\n"
    one = load(file.write(text.replace("TYPE", "opensearch")), {})
    two = load(file.write(text.replace("TYPE", "elasticsearch")), {})
    assert one.sinks[0].options == two.sinks[0].options
    assert "type: opensearch" in shown(one)
    assert load(file.write(shown(one)), {}) == one
    assert fingerprints(one.sinks[0], one.sources) == fingerprints(two.sinks[0], two.sources)


def test_path_and_query_of_a_webhook_are_hidden(file: SettingsFile) -> None:
    (file.path.parent / "hook").write_text("https://hooks.example.com:8443/sEcret/x?y=sEcret\n")
    text = sinks(
        "name: a, type: http, url_file: hook",
        "name: b, type: http, url: 'https://h/sEcret'",
        "name: c, type: http, url: 'https://h'",
    )
    told = shown(load(file.write(text), {}))
    assert "sEcret" not in told
    assert "url: https://hooks.example.com:8443/***\n" in told
    assert "url: https://h/***\n" in told
    assert "url: https://h/\n" in told


def test_no_message_repeats_the_value_of_a_variable(file: SettingsFile) -> None:
    cases = (
        ("transforms: '${X}'", "transforms[0]: '${X}' must be module:name, such as shape:video"),
        ("transforms: ['a${X}']", "transforms[0]: 'a${X}' must be module:name, such as shape"),
        ("transforms: [{function: '${X}'}]", "transforms[0].function: '${X}' must be module:name"),
        ("transforms: ['${F}:', '${X}.py']", "transforms[1]: '${X}.py' must be module:name, wit"),
        ("type: http, url: 'http://a', password_file: '${X}'", "password_file: cannot read '${X}'"),
        ("type: http, url: 'http://a', ca_file: '${X}'", "ca_file: cannot read '${X}': No such f"),
    )
    for members, sentence in cases:
        found = "".join(file.mistakes(sinks(f"name: s, {members}"), X="sEcret", F="sEcret"))
        assert sentence in found
        assert "sEcret" not in found
