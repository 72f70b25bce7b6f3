"""Settings that are refused on Spark, and the modules that travel with a query."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplog_pipe.cli import main
from oplog_pipe.config import load
from oplog_pipe.errors import ConfigError
from oplog_pipe.spark.modules import user_files
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
sources:
  - {agents: ["http://a:1"]}
  - {agents: ["http://a:1"], log: shop/orders}
sinks:
  - {name: a, type: file, path: out.jsonl}
  - {name: b, type: http, url: "http://a/b"}
  - {name: c, type: "sinks_of_rules:Plain"}
  - {name: d, type: "sinks_of_rules:Beginning", at_least_once: true}
"""
    late = "cannot tell a task that comes late: messages may come twice, and a deleted object may"
    late += " come back; set it to true if the target can live with that"
    assert validated(file, text, capsys) == [
        "2",
        "oplog-pipe: name: is missing: there is no folder on Spark, so the rows in targets belong"
        " to the name of the pipe",
        "oplog-pipe: sources[1].log: shop/orders is a topic; on Spark a pipe follows system/oplog"
        " only: use `oplog-pipe run`, or Spark's source with the option topic",
        "oplog-pipe: sinks[0].type: file writes to one machine; on Spark tasks run on many: use"
        " another type, or `oplog-pipe run`",
        f"oplog-pipe: sinks[1].at_least_once: is missing: http {late}",
        f"oplog-pipe: sinks[2].at_least_once: is missing: sinks_of_rules:Plain {late}",
        "oplog-pipe: sinks[3].type: sinks_of_rules:Beginning has a begin_copy, which would be"
        " called behind the rows of a copy, right before end_copy: derive the class from"
        " oplog_pipe.sinks.base.Sink, and leave it out",
    ]


GOOD = """
name: p
dir: d
max_log_bytes: 1 GB
sources: [{agents: ["http://a:1"]}]
sinks:
  - {name: a, type: postgres, url: "postgresql://u@h/d", transforms: ["steps_of_rules.deep:step"]}
  - {name: b, type: mongodb, url: "mongodb://h", database: d}
  - {name: c, type: opensearch, urls: ["http://h"], transforms: [fetch]}
  - {name: d, type: "sinks_of_rules:Plain", at_least_once: true, on_failure: park}
"""


def test_the_rest_is_right(file: SettingsFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert validated(file, GOOD, capsys) == [
        "0", "the settings are right: 1 source, 4 sinks"
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
