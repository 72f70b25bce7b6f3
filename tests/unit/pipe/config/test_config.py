"""The settings of a pipe from a file and the environment: values, secrets and mistakes."""

from pathlib import Path

import pytest

from oplog_pipe.config import load, shown
from oplog_pipe.model.settings import (
    BatchLimits,
    FetchStep,
    FunctionStep,
    PipeSettings,
    SinkSettings,
    SourceSettings,
)
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.file import FileOptions
from oplog_pipe.sinks.http import HttpSinkOptions
from oplog_pipe.sinks.postgres import PostgresOptions
from tests.kits.pipe.settings_file import HEAD, LEAST, QUOTES, SettingsFile, sinks


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path)


def test_the_least_that_runs_has_the_defaults_for_the_rest(file: SettingsFile) -> None:
    folder = file.path.parent
    assert load(file.write(LEAST), {}) == PipeSettings(
        dir=folder / "pipe",
        root=folder,
        sources=(SourceSettings("system/oplog", ("http://localhost:8042",)),),
        sinks=(SinkSettings("copy", "file", FileOptions(f"{folder}/out.jsonl")),),
    )
    empty = "listen:\nmax_segment_bytes: null\n"
    assert load(file.path, {}) == load(file.write(LEAST + empty), {})


def test_relative_paths_begin_at_the_folder_of_the_file(
    file: SettingsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = file.path.parent
    (folder / "below").mkdir()
    (folder / "pw").write_text("sEcret\n")
    file.write(
        "dir: ../pipe\n"
        "sources: [{agents: [http://a:1], password_file: pw}]\n"
        "sinks: [{name: a, type: file, path: /abs/out, dead_letter: below/dead}]\n"
    )
    monkeypatch.chdir(folder / "below")
    settings = load("../pipe.yaml", {})
    assert settings.dir == folder.parent / "pipe"
    assert settings.sources[0].password == "sEcret"
    assert settings.sinks[0].options == FileOptions("/abs/out")
    assert settings.sinks[0].dead_letter == f"{folder}/below/dead"


def test_steps_have_a_short_and_a_long_form(file: SettingsFile) -> None:
    text = """
    name: s
    type: shape:Sink
    options: {url: "http://${HOST}/", times: 3, deep: {list: [1.5, true, null, "$$"]}}
    transforms:
      - shape:video
      - {function: "shape.more:video.kept", namespace: ^video$}
      - fetch
      - fetch:
      - {fetch: {concurrency: 2, timeout: 1m, user: u, password: p, hosts: [h:1]}, namespace: ^a}
    batch: {bytes: 64 KB}
"""
    (sink,) = load(file.write(HEAD + "sinks:\n  -" + text[4:]), {"HOST": "h"}).sinks
    assert sink == SinkSettings(
        name="s",
        type="shape:Sink",
        options=CustomOptions(
            "shape:Sink",
            {"url": "http://h/", "times": 3, "deep": {"list": [1.5, True, None, "$"]}},
        ),
        transforms=(
            FunctionStep("shape:video"),
            FunctionStep("shape.more:video.kept", "^video$"),
            FetchStep(),
            FetchStep(),
            FetchStep("^a", 2, 60.0, "u", "p", hosts=("h:1",)),
        ),
        batch=BatchLimits(bytes=64 << 10),
    )


def test_a_sink_that_sends_messages_back_to_their_log_is_refused(file: SettingsFile) -> None:
    sources = "sources: [{agents: [http://a:1, http://b:1]}, {agents: [http://a:1], log: s/t}]\n"
    text = (
        "dir: d\n" + sources + "sinks:\n"
        "  - {name: a, type: oplog, agents: [http://c:1, http://b:1/]}\n"
        "  - {name: b, type: oplog, agents: [http://a:1], log: s/t}\n"
        "  - {name: c, type: oplog, agents: [http://c:1]}\n"
        "  - {name: d, type: oplog, agents: [http://a:1], log: s/other}\n"
        "  - {name: e, type: oplog, agents: [http://b:1], log: s/t}\n"
        "  - {name: f, type: oplog, agents: [http://a:1], transforms: [shape:other]}\n"
    )
    again = "too: its messages would come again and again"
    assert file.mistakes(text) == [
        "pipe.yaml:4: sinks[0].agents: system/oplog of these agents is the log of sources[0], "
        + again,
        f"pipe.yaml:5: sinks[1].log: s/t of these agents is the log of sources[1], {again}",
    ]


def test_mappings_of_texts_are_taken_as_they_are(file: SettingsFile) -> None:
    text = sinks(
        "name: a, type: http, url: 'https://h/x?y=1', headers: {X-A: '${A}'}, copies: true",
        "name: b, type: postgres, url: 'postgres://h/d', columns: {id2: id, o: owner.name}",
    )
    hooked, stored = load(file.write(text), {"A": "b"}).sinks
    assert hooked.options == HttpSinkOptions("https://h/x?y=1", headers={"X-A": "b"}, copies=True)
    assert stored.options == PostgresOptions(
        "postgres://h/d", columns={"id2": "id", "o": "owner.name"}
    )


def test_units_of_sizes_are_powers_of_1024(file: SettingsFile) -> None:
    text = f"{LEAST}max_segment_bytes: 1.5MB\n"
    assert load(file.write(text), {}).max_segment_bytes == 3 << 19


def test_a_source_is_named_after_its_log(file: SettingsFile) -> None:
    text = LEAST.replace("system/oplog}", "system/oplog}, {agents: [http://a:1], log: orders}")
    settings = load(file.write(text), {})
    assert [(each.name, each.log) for each in settings.sources] == [
        ("system/oplog", "system/oplog"),
        ("default/orders", "default/orders"),
    ]


NO_SIZE = "is not a size, such as 10485760, 64KB, 10MB, 1GB or 1TB"
NO_DURATION = "is not a duration, such as 500ms, 20s, 10m, 12h, 30d or 2w"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("listn: x", "listn: unknown; did you mean listen?"),
        ("5: x", "the name of a setting must be text"),
        ("dir: other", "dir: is given twice, first in line 1"),
        ("listen: 9109", f"listen: {QUOTES}"),
        ("listen: a:99999", "listen: 'a:99999' is not an address such as"),
        ("listen: ${HERE}", "listen: the environment has no variable HERE"),
        ("max_segment_bytes: 1 GiX", f"max_segment_bytes: '1 GiX' {NO_SIZE}"),
        ("max_segment_bytes: 1.5", f"max_segment_bytes: '1.5' {NO_SIZE}"),
        ("max_segment_bytes: 1023", "max_segment_bytes: must be 1 KB to 1 TB"),
        ("offset_flush: often", f"offset_flush: 'often' {NO_DURATION}"),
        ("offset_flush: 0", "offset_flush: must be 10ms to 60s"),
        ("shutdown_timeout: [1s]", "shutdown_timeout: must be a single value"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_path(
    file: SettingsFile, text: str, sentence: str
) -> None:
    (found,) = file.mistakes(LEAST + text)
    assert found.startswith(f"pipe.yaml:4: {sentence}")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{}", "agents: is missing: give the addresses of agents"),
        ("{agents: []}", "agents: is empty: give the addresses of agents"),
        ("{agents: [x]}", "agents: 'x' is no address of an agent"),
        ("{agents: {a: b}}", "agents: must be a list of strings"),
        ("{agents: [http://a:1], log: a/b/c}", "log: 'a/b/c' is not a topic"),
        ("{agents: [http://a:1], name: 'a b'}", "name: 'a b' must be 1 to 64 ASCII letters"),
        (f"{{agents: [http://a:1], log: {'x' * 57}}}", "name: is missing: the name of the log is"),
        ("{agents: [http://a:1], namespace: '(a'}", "namespace: '(a' is not a regular expression"),
        ("{agents: [http://a:1], on_gap: go}", "on_gap: 'go' must be stop or continue"),
        ("{agents: [http://a:1], paswrd: x}", "paswrd: unknown"),
        ("{agents: [http://a:1], pasword: x}", "pasword: unknown; did you mean password?"),
        ("{agents: [http://a:1], password_fil: x}", "password_fil: unknown; did you mean"),
        ("{agents: [http://a:1], password: x, password_file: y}", "password_file: excludes passw"),
        ("{agents: [http://a:1], password_file: zz}", "password_file: cannot read 'zz': No such"),
        ("{agents: [http://a:1], ca_file: zz}", "ca_file: cannot read 'zz': No such file"),
        ("{agents: [http://a:1], key_file: zz}", "cert_file: is missing; key_file is its private"),
    ],
)
def test_a_mistake_in_a_source_names_its_place(
    file: SettingsFile, source: str, sentence: str
) -> None:
    text = f"dir: d\nsinks: [{{name: n, type: file, path: p}}]\nsources:\n  - {source}\n"
    (found,) = file.mistakes(text)
    assert found.startswith(f"pipe.yaml:4: sources[0].{sentence}"), found


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(file: SettingsFile) -> None:
    text = """\
max_segment_bytes: 5
sources:
  - {agents: ["http://u:sEcret@h:1", "gopher://u:sEcret@h"], log: a/b/c}
  - {agents: 5, password: 1234}
sinks:
  - {name: a, type: http, url: "sEcret", batch: {time: 5x}}
  - {name: a, typ: file, path: x}
"""
    found = file.mistakes(text, OPLOG_PIPE_LISTN="sEcret", OPLOG_PIPE_LISTEN="x")
    assert [each.removeprefix("pipe.yaml:").partition(": ")[:1][0] for each in found] == [
        "OPLOG_PIPE_LISTEN",
        "unknown variable OPLOG_PIPE_LISTN; did you mean OPLOG_PIPE_LISTEN?",
        "1", "1", "3", "3", "4", "4", "6", "6", "7", "7",
    ]  # fmt: skip
    assert "sEcret" not in "".join(found)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", ["dir: is missing", "sinks: is missing", "sources: is missing"]),
        ("- x", ["must be a mapping"]),
        ("dir: d\nsources: {}\nsinks: 5\n", ["sources: must be a list", "sinks: must be a list"]),
        ("dir: d\nsources: []\nsinks: []\n", ["sources: is empty: give", "sinks: is empty: give"]),
        ("dir: d\nsources: [x]\nsinks: [y]\n", ["sources[0]: must be a m", "sinks[0]: must be a"]),
        ("dir: [", ["not valid YAML"]),
    ],
)
def test_no_file_leads_to_a_traceback(file: SettingsFile, text: str, sentences: list[str]) -> None:
    found = file.mistakes(text)
    assert len(found) == len(sentences), found
    for each, sentence in zip(found, sentences, strict=True):
        assert sentence in each


def test_the_address_to_listen_on_may_be_a_variable(file: SettingsFile) -> None:
    text = LEAST + "listen: localhost:1\n"
    assert load(file.write(text), {}).listen == "localhost:1"
    assert load(file.path, {"OPLOG_PIPE_LISTEN": ":2"}).listen == ":2"
    assert load(file.path, {"OPLOG_PIPE_LISTEN": "", "OPLOG_PIPE_PORT": "tcp://h:1"})


def test_no_secret_is_shown(file: SettingsFile) -> None:
    (file.path.parent / "key").write_text("sEcret")
    text = """
dir: d
sources: [{agents: ["http://u:sEcret@h:1/?t=sEcret"], password: sEcret}]
sinks:
  - name: a
    type: http
    url: https://u:sEcret@h/x?t=sEcret
    user: u
    password: sEcret
    headers: {X-Key: sEcret}
    transforms: [{fetch: {user: u, password: sEcret, hosts: [h]}}]
  - {name: b, type: postgres, url: "postgresql://u:sEcret@h/d?sslpassword=sEcret"}
  - {name: c, type: elasticsearch, urls: ["http://u:sEcret@h:9200"], api_key_file: key}
  - {name: d, type: mongodb, url: "mongodb://u:sEcret@h/d", database: d}
  - {name: e, type: oplog, agents: ["http://:sEcret@h"], password: sEcret}
  - {name: f, type: "m:C", options: {key: sEcret}}
"""
    settings = load(file.write(text), {})
    told = shown(settings)
    assert settings.sinks[2].options.api_key == "sEcret"  # type: ignore[attr-defined]
    assert "sEcret" not in told + repr(settings) + str(settings)
    for part in (
        "- http://h:1/\n", "url: https://h/***\n", "X-Key: '***'", "password: '***'", "key: '***'",
        "url: postgresql://u:***@h/d?sslpassword=***\n", "- http://h:9200\n", "api_key: '***'",
        "url: mongodb://u:***@h/d\n",
    ):  # fmt: skip
        assert part in told
