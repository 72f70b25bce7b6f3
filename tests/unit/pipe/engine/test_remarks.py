"""Settings that are allowed, and leave objects that are gone, or remove some that are not."""

from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.cli import main
from oplog_pipe.folder.remarks import remarks
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.model.settings import FunctionStep, PipeSettings, SinkSettings, SourceSettings
from oplog_pipe.sinks.file import FileOptions
from oplog_pipe.sinks.http import HttpSinkOptions
from oplog_pipe.sinks.mongodb import MongodbOptions
from oplog_pipe.sinks.oplog import OplogOptions
from oplog_pipe.sinks.postgres import PostgresOptions
from tests.unit.pipe.engine.engine import Folder, RecordingSink, sink

PLACES = PostgresOptions("postgresql://h/d")


def source(name: str, log: str = "system/oplog", namespace: str = ".*") -> SourceSettings:
    return SourceSettings(name, ("http://localhost:1",), log, namespace=namespace)


def with_sources(folder: Folder, *sources: SourceSettings) -> Folder:
    object.__setattr__(folder.settings, "sources", sources)
    return folder


async def test_objects_of_a_source_that_has_left_the_settings_are_told_at_each_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = with_sources(Folder(tmp_path, sink("c0")), source("old"), source("shop/orders", "a/b"))
    await folder.run(RecordingSink())
    Checkpoints(folder.path).save("shop/orders", SourceCheckpoint("a/b", "1", 0))
    assert remarks(folder.settings) == []
    with_sources(folder, source("new"))
    told = (
        "sink 'c0': no source has the name 'old' any more: its objects stay in the target, and no"
        " copy removes those that are gone; if it has another name now, give it `name: old` back"
    )
    assert remarks(folder.settings) == [told]
    for _ in range(2):
        caplog.clear()
        await folder.run(RecordingSink())
        warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert warnings == [told]
    with_sources(folder, source("old"), source("new"))
    assert remarks(folder.settings) == []


@pytest.mark.parametrize(
    ("namespaces", "of_sink", "options", "is_told"),
    [
        ((".*", ".*"), ".*", PLACES, True),
        (("^video$", ".*"), ".*", PLACES, True),
        (("^video$", "^video$"), "^video$", PLACES, True),
        ((".*", ".*"), ".*", MongodbOptions("mongodb://h", "d"), True),
        ((".*", ".*"), ".*", OplogOptions(("http://h",)), True),
        (("^video$", "^user$"), ".*", PLACES, False),
        (("^video$", ".*"), "^user$", PLACES, False),
        ((".*", ".*"), ".*", OplogOptions(("http://h",), log="c/d"), False),
        ((".*", ".*"), ".*", FileOptions("a"), False),
        ((".*", ".*"), ".*", HttpSinkOptions("http://h"), False),
    ],
)
def test_two_stores_whose_objects_have_one_place_are_told(
    tmp_path: Path, namespaces: tuple[str, str], of_sink: str, options: Any, is_told: bool
) -> None:
    sources = [source(name, namespace=each) for name, each in zip("ab", namespaces, strict=True)]
    settings = PipeSettings(
        tmp_path, tmp_path, (*sources, source("t", "a/b")),
        (SinkSettings("s", "t", options, namespace=of_sink),),
    )  # fmt: skip
    assert len(remarks(settings)) == is_told
    assert all("'a' and 'b' with the same type and id" in each for each in remarks(settings))


def test_a_transform_may_give_each_store_places_of_its_own(tmp_path: Path) -> None:
    step = FunctionStep("mine:by_source")
    settings = PipeSettings(
        tmp_path, tmp_path, (source("a"), source("b")),
        (SinkSettings("s", "postgres", PLACES, transforms=(step,)),),
    )  # fmt: skip
    assert remarks(settings) == []


def test_validate_tells_it_beside_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipe.yaml"
    file.write_text(
        "dir: ./pipe\n"
        "sources:\n"
        "  - {name: a, agents: [http://localhost:1]}\n"
        "  - {name: b, agents: [http://localhost:2]}\n"
        "sinks: [{name: s, type: oplog, agents: [http://localhost:3]}]\n"
    )
    assert main(["validate", "--offline", "-f", str(file)]) == 0
    assert "# sink 's': objects of the sources 'a' and 'b'" in capsys.readouterr().out
