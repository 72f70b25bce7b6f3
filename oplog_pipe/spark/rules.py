"""Settings that a pipe on Spark does not have. Each comes with what to do instead."""

from collections.abc import Iterator, Sequence

from oplog_pipe.errors import ConfigError
from oplog_pipe.model.settings import FetchStep, PipeSettings, SinkSettings
from oplog_pipe.sinks.base import Fenced, Sink
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.file import FileOptions
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.sinks.parts.ownership import OwnedRows
from oplog_pipe.spark.place import is_root, is_within, located

FILES = ("parquet", "orc", "json")
"""Formats of tables that are folders with files."""

# Formats that keep each text, number and null as it is.
_EXACT = ("parquet", "orc")

# Formats that leave out a batch they have.
_ONCE = (*FILES, "delta")
# These do nothing.
_NOTHING = (Sink.begin_copy, OwnedRows.begin_copy)
_TOO_LATE = "cannot tell a task that comes late"


def check(settings: PipeSettings, sinks: Sequence[Sink | None]) -> None:
    """Raise ConfigError, which has a line per setting.

    ``sinks``: of the settings. None: a table of Spark.
    """
    if problems := list(_problems(settings, sinks)):
        raise ConfigError("\n".join(problems))


def _problems(settings: PipeSettings, sinks: Sequence[Sink | None]) -> Iterator[str]:
    if settings.name is None:
        yield (
            "name: is missing: there is no folder on Spark, so the rows in targets belong to the"
            " name of the pipe"
        )
    yield from _of_paths(settings)
    for number, (own, sink) in enumerate(zip(settings.sinks, sinks, strict=True)):
        found = _of_table(own) if sink is None else _of_sink(own, sink)
        fetches = sink is not None and any(isinstance(each, FetchStep) for each in own.transforms)
        if fetches and any(source.store is not None for source in settings.sources):
            yield (
                f"sinks[{number}].transforms: fetch needs the ref that agents add: leave out store"
                " of the sources"
            )
        for name, sentence in (*found, *_of_both(own)):
            yield f"sinks[{number}].{name}: {sentence}"


def _of_paths(settings: PipeSettings) -> Iterator[str]:
    paths: dict[str, int] = {}
    for number, own in enumerate(settings.sinks):
        for table in own.tables:
            try:
                if table.path is not None:
                    located(table.path, settings.root)
            except ConfigError as error:
                yield f"sinks[{number}].tables.{table.name}.{error}"
        if not isinstance(own.options, FormatOptions):
            continue
        try:
            path = located(own.options.path, settings.root)
        except ConfigError as error:
            yield f"sinks[{number}].{error}"
            continue
        if is_root(path):
            yield f"sinks[{number}].path: is the root of a file system: name a folder in it"
            continue
        for other, place in paths.items():
            if is_within(path, other) or is_within(other, path):
                yield f"sinks[{number}].path: is in the folder of sinks[{place}], or around it"
        paths[path] = number


def _of_both(own: SinkSettings) -> Iterator[tuple[str, str]]:
    if own.name in (".", ".."):
        yield "name", f"{own.name!r} is no name of a folder, as a checkpoint has it"
    if own.tables and own.select is None:
        yield "select", "is missing: tables are for select"


def _of_sink(own: SinkSettings, sink: Sink) -> Iterator[tuple[str, str]]:
    if isinstance(own.options, FileOptions):
        yield (
            "type",
            f"{own.type} writes to one machine; on Spark tasks run on many: use another type, a"
            " format such as json, or `oplog-pipe run`",
        )
    elif not isinstance(sink, Fenced) and not own.at_least_once:
        yield (
            "at_least_once",
            f"is missing: {own.type} {_TOO_LATE}: messages may come twice, and a deleted object"
            " may come back; set it to true if the target can live with that",
        )
    begin_copy = type(sink).begin_copy
    if isinstance(own.options, CustomOptions) and begin_copy not in _NOTHING:
        yield (
            "type",
            f"{own.type} has a begin_copy, which would be called behind the rows of a copy, right"
            " before end_copy: derive the class from oplog_pipe.sinks.base.Sink, and leave it out",
        )


def _of_table(own: SinkSettings) -> Iterator[tuple[str, str]]:
    assert isinstance(own.options, FormatOptions)
    for name in ("transforms", "dead_letter"):
        if getattr(own, name):
            yield name, "a table of Spark has none; use select"
    if own.options.merge and own.type not in _EXACT:
        yield "merge", f"is for {' and '.join(_EXACT)}; a table of {own.type} is a history"
    elif own.type not in _ONCE and not own.at_least_once:
        yield (
            "at_least_once",
            f"is missing: Spark may write a batch to {own.type} twice; set it to true if the table"
            " can live with that",
        )
