"""A type of sink is one module: the settings file, its messages and the engine find it there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplog_pipe import sinks
from oplog_pipe.config import load, shown
from oplog_pipe.deliver.factory import build
from oplog_pipe.errors import ConfigError
from oplog_pipe.folder.fingerprint import fingerprints
from oplog_pipe.folder.remarks import shared
from oplog_pipe.sinks import registry
from tests.kits.pipe.settings_file import SettingsFile
from tests.kits.pipe.settings_file import sinks as with_sinks

MODULE = '''
"""Rows in buckets."""

from dataclasses import dataclass, field

from oplog_pipe.model.fields import ID, Field, Kind, template
from oplog_pipe.model.options import SinkOptions
from oplog_pipe.sinks.base import Sink


@dataclass(frozen=True)
class BucketOptions(SinkOptions):
    type_name = "bucket"
    aliases = ("pail",)
    hints = ("heap",)
    settings = (
        template("bucket", "Bucket, with `{namespace}`."),
        ID,
        Field("token", Kind.SECRET, "What it takes.", required="give a token", hints=("ticket",)),
    )
    identity = ("bucket", "id")
    place = "bucket"

    token: str = field(repr=False)
    bucket: str = "{namespace}"
    id: str = "{id}"

    def sink(self, namespace, root):
        return BucketSink()


class BucketSink(Sink):
    def write(self, messages):
        pass
'''
BUCKET = "name: b, type: pail, token: sEcret"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The types are looked for again, before and after the test."""
    with monkeypatch.context() as patch:
        registry.types.cache_clear()
        yield patch
    registry.types.cache_clear()


@pytest.fixture
def file(tmp_path: Path, found: pytest.MonkeyPatch) -> SettingsFile:
    """Settings beside which the package of the sinks has one more module."""
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "bucket.py").write_text(MODULE)
    found.setattr(sinks, "__path__", [*sinks.__path__, str(folder)])
    found.delitem(sys.modules, "oplog_pipe.sinks.bucket", raising=False)
    return SettingsFile(tmp_path)


def test_the_settings_of_a_new_module_are_read_and_shown_without_its_secrets(
    file: SettingsFile,
) -> None:
    settings = load(file.write(with_sinks(BUCKET)), {})
    (sink,) = settings.sinks
    assert type(build(sink, settings.root)).__name__ == "BucketSink"
    text = shown(settings)
    assert "sEcret" not in text + repr(settings)
    assert "type: pail" in text
    assert "bucket: '{namespace}'" in text


def test_the_rules_for_places_hold_for_a_new_module(file: SettingsFile) -> None:
    (told,) = file.mistakes(with_sinks(f"{BUCKET}, bucket: all"))
    assert "sinks[0].id" in told or "sinks[0].bucket" in told
    text = with_sinks(BUCKET).replace("http://a:1]", "http://a:1], name: x}, {agents: [http://b:1]")
    assert len([*shared(load(file.write(text), {}))]) == 1


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("name: b, type: pail", "token: is missing: give a token"),
        ("name: b, type: bucket, ticket: x", "ticket: unknown; did you mean token?"),
        ("name: b, type: heap", "did you mean bucket? "),
        ("name: b, type: file, path: x, bucket: y", "it belongs to a sink of type bucket"),
        ("name: b, type: pails", "did you mean pail?"),
    ],
)
def test_mistakes_name_the_settings_of_a_new_module(
    file: SettingsFile, sink: str, words: str
) -> None:
    assert words.strip() in "\n".join(file.mistakes(with_sinks(sink)))


def test_a_change_of_place_in_a_new_module_is_a_change_of_the_target(file: SettingsFile) -> None:
    def target(sink: str) -> int:
        settings = load(file.write(with_sinks(sink)), {})
        return fingerprints(settings.sinks[0], settings.sources)["target"]

    assert target(BUCKET) == target(BUCKET.replace("sEcret", "x").replace("pail", "bucket"))
    assert target(BUCKET) != target(f"{BUCKET}, bucket: '{{namespace}}s'")


def test_the_numbers_in_folders_of_earlier_releases_hold(tmp_path: Path) -> None:
    lines = {
        "name: s, type: file, path: /tmp/x.jsonl": 193440673141013,
        "name: s, type: http, url: 'http://h/x', headers: {a: b}": 66772910762918,
        "name: s, type: postgres, url: 'postgresql://h/d', columns: {a: b.c}": 160220746761798,
        "name: s, type: elasticsearch, urls: 'http://h:9200', api_key: secret": 64677427884730,
        "name: s, type: mongodb, url: 'mongodb://h', database: d": 133999214794178,
        "name: s, type: oplog, agents: 'http://z:1', log: b": 91464571885548,
        "name: s, type: 'm:C', options: {a: [1]}": 126995609473286,
    }
    for line, number in lines.items():
        settings = load(SettingsFile(tmp_path).write(with_sinks(line)), {})
        assert fingerprints(settings.sinks[0], ())["target"] == number, line


@pytest.mark.parametrize(
    ("sink", "driver", "module"),
    [
        ("type: postgres, url: 'postgresql://h/d'", "psycopg", "postgres"),
        ("type: mongodb, url: 'mongodb://h', database: d", "pymongo", "mongodb"),
    ],
)
def test_a_driver_is_imported_for_a_sink_of_its_type_only(
    tmp_path: Path, found: pytest.MonkeyPatch, sink: str, driver: str, module: str
) -> None:
    package = f"{sinks.__name__}.{module}"
    for name in [*sys.modules]:
        if name == package or name.startswith(f"{package}."):
            found.delitem(sys.modules, name)
    for name in [driver, *(each for each in sys.modules if each.startswith(f"{driver}."))]:
        found.setitem(sys.modules, name, None)
    found.setattr(sinks, module, None)
    settings = load(SettingsFile(tmp_path).write(with_sinks(f"name: s, {sink}")), {})
    with pytest.raises(ConfigError, match=f"needs the package {driver}"):
        build(settings.sinks[0], tmp_path)
