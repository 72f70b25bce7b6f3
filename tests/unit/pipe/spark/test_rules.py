"""Settings that are refused on Spark, and the modules that travel with a query."""

import asyncio
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oplog_pipe.cli import main
from oplog_pipe.config import load
from oplog_pipe.errors import ConfigError
from oplog_pipe.model import checks
from oplog_pipe.pipe import Pipe
from oplog_pipe.spark.modules import user_files
from oplog_pipe.spark.place import is_within, located, store_of
from tests.kits.pipe.settings_file import SettingsFile

SINKS = """
from oplog_pipe.sinks.base import Sink
import helper_of_rules

class Plain(Sink):
    def write(self, messages): ...

class Beginning(Plain):
    def begin_copy(self, generation, source): ...
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SettingsFile]:
    (tmp_path / "sinks_of_rules.py").write_text(SINKS)
    (tmp_path / "helper_of_rules.py").write_text("")
    (tmp_path / "unused_of_rules.py").write_text("")
    package = tmp_path / "steps_of_rules"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "__init__.py").write_text("def step(message): return message")
    (package / "words.txt").write_text("words")
    yield SettingsFile(tmp_path)
    for name in [name for name in sys.modules if "_of_rules" in name]:
        del sys.modules[name]
    with suppress(ValueError):  # no module was imported
        sys.path.remove(str(tmp_path.resolve()))


def validated(file: SettingsFile, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    code = main(["validate", "--offline", "--spark", "-f", str(file.write(text))])
    out, err = capsys.readouterr()
    return [str(code), *(out + err).splitlines()]


def test_what_a_pipe_on_spark_does_not_have_is_named_at_once(
    file: SettingsFile, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
dir: d
sources: [{agents: ["http://a:1"], store: "mongodb://u:sEcret@h/d"}]
sinks:
  - {name: a, type: file, path: out.jsonl}
  - {name: b, type: http, url: "http://a/b"}
  - {name: c, type: "sinks_of_rules:Plain"}
  - {name: d, type: "sinks_of_rules:Beginning", at_least_once: true}
  - {name: e, format: jdbc, path: t, merge: id, transforms: fetch, dead_letter: d}
  - {name: f, format: jdbc, path: t/u}
  - {name: g, type: mongodb, url: "mongodb://h", database: d, tables: {t: {format: orc}}}
  - {name: .., type: mongodb, url: "mongodb://h", database: e, transforms: fetch}
"""
    late = "cannot tell a task that comes late: messages may come twice, and a deleted object may"
    late += " come back; set it to true if the target can live with that"
    assert validated(file, text, capsys) == [
        "2",
        "oplog-pipe: name: is missing: there is no folder on Spark, so the rows in targets belong"
        " to the name of the pipe",
        "oplog-pipe: sinks[5].path: is in the folder of sinks[4], or around it",
        "oplog-pipe: sinks[0].type: file writes to one machine; on Spark tasks run on many: use"
        " another type, a format such as json, or `oplog-pipe run`",
        f"oplog-pipe: sinks[1].at_least_once: is missing: http {late}",
        f"oplog-pipe: sinks[2].at_least_once: is missing: sinks_of_rules:Plain {late}",
        "oplog-pipe: sinks[3].type: sinks_of_rules:Beginning has a begin_copy, which would be"
        " called behind the rows of a copy, right before end_copy: derive the class from"
        " oplog_pipe.sinks.base.Sink, and leave it out",
        "oplog-pipe: sinks[4].transforms: a table of Spark has none; use select",
        "oplog-pipe: sinks[4].dead_letter: a table of Spark has none; use select",
        "oplog-pipe: sinks[4].merge: is for parquet and orc; a table of jdbc is a history",
        "oplog-pipe: sinks[5].at_least_once: is missing: Spark may write a batch to jdbc twice;"
        " set it to true if the table can live with that",
        "oplog-pipe: sinks[6].select: is missing: tables are for select",
        "oplog-pipe: sinks[7].transforms: fetch needs the ref that agents add: leave out store of"
        " the sources",
        "oplog-pipe: sinks[7].name: '..' is no name of a folder, as a checkpoint has it",
    ]


GOOD = """
name: p
dir: d
max_log_bytes: 1 GB
sources:
  - {agents: ["http://a:1"]}
  - {agents: ["http://a:1"], log: shop/orders, on_gap: continue}
sinks:
  - {name: a, type: postgres, url: "postgresql://u@h/d", transforms: ["steps_of_rules.deep:step"]}
  - {name: b, type: mongodb, url: "mongodb://h", database: d}
  - {name: c, type: opensearch, urls: ["http://h"], transforms: [fetch]}
  - {name: d, type: "sinks_of_rules:Plain", at_least_once: true, on_failure: park}
  - {name: e, format: parquet, path: t, merge: [type, id]}
  - {name: f, format: delta, path: u, options: {password: sEcret}}
  - {name: g, format: jdbc, path: v, at_least_once: true}
  - name: h
    type: mongodb
    url: mongodb://h
    database: e
    tables: {owners: {format: orc, path: owners}}
    select: SELECT * FROM input
"""


def test_the_rest_is_right(file: SettingsFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert validated(file, GOOD, capsys) == [
        "0", "the settings are right: 2 sources, 8 sinks"
    ]  # fmt: skip


def test_modules_travel_with_what_they_import_from_their_folder(
    file: SettingsFile, tmp_path: Path
) -> None:
    settings = load(file.write(GOOD))
    folder = tmp_path / "archives"
    folder.mkdir()
    found = user_files(settings.sinks, settings.root, folder)
    assert [each.name for each in found] == [
        "helper_of_rules.py", "sinks_of_rules.py", "steps_of_rules.zip",
    ]  # fmt: skip
    with zipfile.ZipFile(found[-1]) as archive:
        assert archive.namelist() == [
            "steps_of_rules/__init__.py",
            "steps_of_rules/deep/__init__.py",
            "steps_of_rules/words.txt",
        ]


def test_a_module_that_is_missing_is_named(file: SettingsFile, tmp_path: Path) -> None:
    settings = load(file.write(GOOD.replace("steps_of_rules.deep", "missing_of_rules")))
    with pytest.raises(ConfigError, match="missing_of_rules"):
        user_files(settings.sinks, settings.root, tmp_path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("format: parquet, path: t", "format: a table of Spark is written by"),
        ("type: file, path: t, select: SELECT 1", "select is for"),
        ("type: file, path: t, tables: {a: {format: orc}}", "tables is for"),
    ],
)
def test_what_only_spark_has_is_refused_on_one_machine(
    file: SettingsFile, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    line: str, problem: str,
) -> None:  # fmt: skip
    text = f"dir: d\nsources: [{{agents: [http://a:1]}}]\nsinks: [{{name: s, {line}}}]\n"
    path = file.write(text)
    assert main(["validate", "--offline", "-f", str(path)]) == 2
    assert asyncio.run(Pipe(load(path)).run(asyncio.Event())) == 2
    for said in (capsys.readouterr().err, caplog.text):
        assert "sink s: " in said
        assert problem in said
        assert "`oplog-pipe spark` only" in said


def test_values_of_options_are_hidden(
    file: SettingsFile, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file.write(GOOD)
    assert main(["validate", "--offline", "--spark", "--show", "-f", str(path)]) == 0
    out = capsys.readouterr().out
    assert "sEcret" not in out
    assert "format: delta" in out
    assert "select: SELECT * FROM input" in out


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("tables: [a]", "sinks[0].tables: must be a mapping of names to tables"),
        ("tables: {a-b: {format: orc}}", "sinks[0].tables: 'a-b' must be a name in SQL"),
        ("tables: {Input: {format: orc}}", "'Input' must be a name in SQL such as owners, other"),
        ("tables: {a: {path: b}}", "sinks[0].tables.a.format: is missing"),
        ("tables: {a: {format: orc}, A: {format: orc}}", "sinks[0].tables.A: is given twice"),
        ("tables: {a: {format: orc, pfad: b}}", "sinks[0].tables.a.pfad: unknown"),
        ("merge: [a]", "sinks[0].merge: unknown"),
        ("select: SHOW TABLES", "sinks[0].select: must be a query"),
        ("select: BEGIN SELECT 1; END", "sinks[0].select: must be a query"),
        ("select: DROP TABLE a", "sinks[0].select: must be a query"),
        ("select: WITH b AS (SELECT 1) INSERT INTO a SELECT 1", "must be a query"),
    ],
)
def test_mistakes_in_tables_are_named(file: SettingsFile, line: str, mistake: str) -> None:
    head = "dir: d\nsources: [{agents: [http://a:1]}]\n"
    (found,) = file.mistakes(f"{head}sinks: [{{name: s, type: file, path: t, {line}}}]\n")
    assert mistake in found


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ([], "--checkpoint: is missing"),
        (["--checkpoint", ""], "--checkpoint: is empty"),
        (["--checkpoint", "c", "--master", "foo://x"], "--master: 'foo://x' is no master such as"),
        (["--checkpoint", "c", "--master", "local[x]"], "--master: 'local[x]' is no master such"),
        (["--checkpoint", "c", "--master", "local[0]"], "--master: 'local[0]' is no master such"),
        (["--checkpoint", "c", "--master", "local[2,0]"], "--master: 'local[2,0]' is no master"),
        (["--checkpoint", "c", "--master", "spark://host"], "--master: 'spark://host' is no"),
        (["--checkpoint", "c", "--tasks", "0"], "--tasks"),
        (["--checkpoint", "c", "--tasks", "10001"], "--tasks"),
        (["--checkpoint", "c", "--max-operations", "0"], "--max-operations"),
        (["--checkpoint", "c", "--max-operations", f"{(1 << 24) + 1}"], "--max-operations"),
    ],
)
def test_a_wrong_flag_is_named(
    file: SettingsFile, capsys: pytest.CaptureFixture[str], flags: list[str], problem: str
) -> None:
    assert main(["spark", "-f", str(file.write(GOOD)), *flags]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "url",
    ["mongo://u:sEcret@h/d", "mongodb://u:sEcret@[::1/d", "mongodb://", "mongodb://h:x/d"],
)
def test_a_store_is_a_file_or_mongodb(file: SettingsFile, url: str) -> None:
    head = "dir: d\nsinks: [{name: s, type: file, path: t}]\n"
    (found,) = file.mistakes(f"{head}sources: [{{agents: [http://a:1], store: '{url}'}}]\n")
    assert "store: must be the path of a SQLite file, or mongodb://host/database" in found
    assert "sEcret" not in found


@pytest.mark.parametrize(
    "store",
    [
        "log.db", "file:x", "mongodb://h", "mongodb://u:p[w@[::1]:27017,h:1/d?replicaSet=r",
        "mongodb+srv://u:p@h/", "mongodb://%2Ftmp%2Fmongodb.sock/d",
    ],
)  # fmt: skip
def test_these_stores_are_right(store: str) -> None:
    checks.store(store)


@pytest.mark.parametrize(
    ("one", "other", "is_so"),
    [
        ("/a/b", "/a", True), ("/a", "/a", True), ("/ab", "/a", False), ("/a", "/a/b", False),
        ("/a/../b/c", "/b", True), ("s3a://x/a/b", "s3a://x/a/", True),
        ("s3a://x/ab", "s3a://x/a", False), ("file:/x/t", "/x", True),
        ("/x/t", "file:///x/t", True), ("file:///x/tt", "file:/x/t", False),
        ("/a", "/", True), ("hdfs:/a", "hdfs:///", True), ("hdfs:/a", "/", False),
        ("s3a://x/a/../b", "s3a://x/b", True), ("hdfs://[::1/x", "/x", False),
    ],
)  # fmt: skip
def test_folders_in_one_another(one: str, other: str, is_so: bool) -> None:
    assert is_within(one, other) is is_so


REFUSED = "must not hold one of : [ ] { } * ? \\ or a control character"
HOST = "must begin as s3a://bucket or hdfs://host:9000 do, with a port of at most 65535 and without"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a[1]", REFUSED), ("a*", REFUSED), ("a{b}", REFUSED), ("s3a://b/a?", REFUSED),
        ("tables/2024:x", REFUSED), ("a:b", REFUSED), ("file:a/b", REFUSED),
        ("s3a://b/a:b", REFUSED), ("a\0b", REFUSED), ("s3a://b\n/a", REFUSED),
        ("hdfs://[::1/x", HOST), ("hdfs://[::1]:9000/x", HOST), ("hdfs://h:x/x", HOST),
        ("hdfs://h:65536/x", HOST), ("hdfs://h:99999999/x", HOST),
        ("s3a://KEY:sEcret@bucket/x", HOST), ("s3a://KEY:sEc/ret@bucket/x*", HOST),
        ("file://tables/x", "must be a whole path behind file://, such as file:///tables/x"),
    ],
)  # fmt: skip
def test_a_path_that_spark_or_hadoop_misreads_is_refused(path: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        located(path, Path("/root"))
    assert str(raised.value).startswith("path: ")
    assert problem in str(raised.value)
    assert "ret@" not in str(raised.value)
    assert "\0" not in str(raised.value)


def test_a_folder_of_settings_with_a_colon_has_no_tables() -> None:
    with pytest.raises(ConfigError, match="path: '/ro:ot/a' must not hold one of : "):
        located("a", Path("/ro:ot"))
    assert located("s3a://b/a", Path("/ro:ot")) == "s3a://b/a"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a/./b", "/root/a/b"), ("/a/b/", "/a/b"), ("//a/b", "/a/b"), ("..", "/"),
        *((each, each) for each in (
            "s3a://b/a", "s3a://b", "hdfs://h:9000/x", "hdfs://h:65535/x", "hdfs:///x", "dbfs:/x",
            "file:/x", "file:///x", "abfss://container@account.dfs.core.windows.net/x",
        )),
    ],
)  # fmt: skip
def test_other_paths_are_right(path: str, found: str) -> None:
    assert located(path, Path("/root")) == found


def test_a_wrong_path_is_named_with_its_place(
    file: SettingsFile, capsys: pytest.CaptureFixture[str]
) -> None:
    head = GOOD.partition("sinks:")[0]
    text = f"""{head}sinks:
  - {{name: a, format: parquet, path: "hdfs://[::1/x"}}
  - {{name: b, format: parquet, path: /}}
  - {{name: c, format: parquet, path: "s3a://bucket/x/.."}}
  - name: d
    format: parquet
    path: t
    select: SELECT 1
    tables: {{o: {{format: orc, path: a:b}}, p: {{format: delta, path: "s3a://bucket"}}}}
"""
    code, *lines = validated(file, text, capsys)
    assert code == "2"
    assert [each.removeprefix("oplog-pipe: ").partition(":")[0] for each in lines] == [
        "sinks[0].path", "sinks[1].path", "sinks[2].path", "sinks[3].tables.o.path",
    ]  # fmt: skip
    assert "is the root of a file system" in lines[1]
    assert main(["spark", "--checkpoint", "c", "-f", str(file.path)]) == 2
    assert capsys.readouterr().err.splitlines() == lines


def test_a_store_in_mongodb_goes_to_the_source_as_it_is() -> None:
    url = "mongodb://u:p@h/d?replicaSet=[r]"
    assert store_of(url, Path("/root")) == url
    assert store_of("a/../b[1].db", Path("/root")) == "/root/b[1].db"
    assert store_of("file:x", Path("/root")) == "/root/file:x"
