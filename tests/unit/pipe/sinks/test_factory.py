"""Making sinks from settings. No process, no network."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.deliver.factory import build
from oplog_pipe.errors import ConfigError
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.base import removes_at_end_of_copy
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.file import FileOptions
from oplog_pipe.sinks.http import HttpSinkOptions
from oplog_pipe.sinks.mongodb import MongodbOptions
from oplog_pipe.sinks.oplog import OplogOptions, OplogSink
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.search import ElasticsearchOptions
from oplog_pipe.sinks.search.sink import ElasticsearchSink

MODULE = """
from oplog_pipe.sinks.base import Sink

class Full:
    def __init__(self, *, size=1): self.size = size
    def open(self): pass
    def write(self, messages): pass
    def begin_copy(self, generation, source): pass
    def end_copy(self, generation, source): pass
    def close(self): pass

class Short(Sink):
    def write(self, messages): self.taken = messages

class Idle(Sink):
    pass

class Lacking:
    def open(self): pass
    def write(self, messages): pass

class Removing(Short):
    removes_at_end_of_copy = True

class Exiting(Idle):
    def __init__(self): raise SystemExit(0)
    def write(self, messages): pass

def function(): pass
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("mine", None)


def custom(root: Path, target: str, **arguments: Any) -> Any:
    return build(SinkSettings("s", target, CustomOptions(target, arguments)), root)


def test_a_class_of_a_module_beside_the_settings_gets_its_options(root: Path) -> None:
    assert custom(root, "mine:Full", size=3).size == 3


def test_a_subclass_needs_write_only(root: Path) -> None:
    sink = custom(root, "mine:Short")
    sink.open()
    sink.begin_copy(1, "s")
    sink.write([])
    sink.end_copy(1, "s")
    sink.close()
    assert sink.taken == []


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("mine", "sink s: 'mine' is no target: give module:name"),
        ("missing:Full", "missing:Full: the module cannot be imported: ModuleNotFoundError"),
        ("broken:Full", "the module cannot be imported: ZeroDivisionError: division by zero"),
        ("mine:Nothing", "mine:Nothing: the module has no 'Nothing'"),
        ("mine:function", "mine:function: is no class"),
        ("mine:Idle", "mine:Idle: the class has no write;"),
        ("mine:Exiting", "mine:Exiting: the sink cannot be created: SystemExit in mine.py, line "),
        ("mine:Lacking", "mine:Lacking: the class has no begin_copy, end_copy, close;"),
    ],
)
def test_a_class_of_no_use_is_refused(root: Path, target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        custom(root, target)


def test_only_sinks_whose_copies_remove_what_is_gone_say_so(root: Path) -> None:
    options: list[tuple[Any, bool]] = [
        (PostgresOptions("postgresql://h/d"), True),
        (MongodbOptions("mongodb://h", "d"), True),
        (ElasticsearchOptions(("http://h",)), True),
        (HttpSinkOptions("http://h/", copies=True), True),
        (HttpSinkOptions("http://h/"), False),
        (FileOptions("out.jsonl"), False),
        (OplogOptions(("http://h",)), False),
        (CustomOptions("mine:Removing", {}), True),
        (CustomOptions("mine:Full", {}), False),
    ]
    found = [build(SinkSettings("s", "t", each), root) for each, _ in options]
    assert [removes_at_end_of_copy(each) for each in found] == [is_so for _, is_so in options]


def test_options_that_the_class_does_not_take_are_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"sink s: mine:Full: .*TypeError.*'colour'"):
        custom(root, "mine:Full", colour="red")


def test_the_types_of_the_house_are_made(root: Path) -> None:
    search = build(
        SinkSettings("s", "elasticsearch", ElasticsearchOptions(("http://localhost:9200",))), root
    )
    agent = build(SinkSettings("s", "oplog", OplogOptions(("http://localhost:8042",))), root)
    assert isinstance(search, ElasticsearchSink)
    assert isinstance(agent, OplogSink)
    search.close()
    agent.close()


@pytest.mark.parametrize(
    "options",
    [
        ElasticsearchOptions(("ftp://localhost",)),
        ElasticsearchOptions(()),
        ElasticsearchOptions(("http://localhost:9200",), index="Upper"),
        OplogOptions(("http://localhost:8042",), log="a/b/c"),
    ],
)
def test_options_of_no_use_are_refused_with_the_name_of_the_sink(
    root: Path, options: ElasticsearchOptions | OplogOptions
) -> None:
    with pytest.raises(ConfigError, match="sink s: "):
        build(SinkSettings("s", "t", options), root)


@pytest.mark.parametrize(
    "value", ["geheim-4711\n", "geheim-4711 ", "geheim-4711é", "a\r\ngeheim-4711"]
)
def test_a_header_that_http_does_not_allow_is_refused_without_its_value(
    root: Path, value: str
) -> None:
    hook = HttpSinkOptions("http://h/", headers={"X-Fine": "a b", "X-Token": value})
    search = ElasticsearchOptions(("http://h",), api_key=value)
    for kind, options, words in (
        ("http", hook, "sink s: headers: the value of X-Token must be printable ASCII"),
        ("elasticsearch", search, "sink s: api_key: the value of Authorization must be"),
        ("http", HttpSinkOptions("http://h/", headers={"X Y": ""}), "'X Y' is no name of a header"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            build(SinkSettings("s", kind, options), root)
        assert "geheim" not in str(caught.value)


def test_a_missing_package_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oplog_pipe.sinks.search.sink", None)
    with pytest.raises(
        ConfigError, match=r"install -c constraints.txt '\.\[pipe\]' \./clients/python$"
    ):
        build(SinkSettings("s", "elasticsearch", ElasticsearchOptions(("http://h",))), root)
