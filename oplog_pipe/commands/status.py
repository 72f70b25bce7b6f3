"""``oplog-pipe status``: the log, the sources and the sinks, for people and in JSON."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from oplog_kit.command.options import json_option
from oplog_kit.units import rough_duration, rough_size
from oplog_kit.wording import counted
from oplog_pipe.commands.options import settings_option
from oplog_pipe.commands.shown import table
from oplog_pipe.errors import NoLogError
from oplog_pipe.folder.operate import Folder, SinkOffsets, log_status, view
from oplog_pipe.folder.remarks import left_behind
from oplog_pipe.follow.checkpoints import SourceCheckpoint
from oplog_pipe.follow.streams import START, is_oplog
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.model.status import (
    GAVE_UP,
    WAITS_FOR_COPY,
    LogStatus,
    PipeStatus,
    SinkStatus,
    SourceStatus,
)
from oplog_pipe.watch.listen import ask
from oplogc.http.answers import printable

_SOURCE_MEMBERS = ("name", "log", "phase", "position", "copied", "copy_total")


@click.command()
@settings_option()
@json_option
def status(settings: PipeSettings, as_json: bool) -> None:
    """Show the log, the positions of sources, offset and lag of sinks.

    A running pipe that serves `listen` gives its live figures. Otherwise they come from the folder:
    sinks have their flushed offsets, and whether a pipe runs is not known.
    """
    live = None if settings.listen is None else ask(settings.listen)
    if live is not None and live.folder == str(settings.dir.resolve()):
        members, lines = msgspec.to_builtins(live), live_lines(live)
    else:  # another pipe may listen there
        live, folder = None, _folder(settings)
        members, lines = folder_members(settings, folder), folder_lines(settings, folder)
    if as_json:
        print(json.dumps({"live": live is not None, **members}))
    else:
        print("\n".join([*lines, *map(printable, left_behind(settings))]))


def _folder(settings: PipeSettings) -> Folder:
    """Raises LogError, which tells where else a status may come from."""
    try:
        return view(settings)
    except NoLogError as error:
        hint = (
            "set listen, and it tells its status while it runs"
            if settings.listen is None
            else f"it tells its status while it runs; {_no_answer(settings.listen)}"
        )
        raise NoLogError(f"{error}; a pipe on Spark has none: {hint}") from None


def _no_answer(listen: str) -> str:
    return f"no answer from this pipe at {listen}"


def folder_members(settings: PipeSettings, folder: Folder) -> dict[str, Any]:
    """Return the JSON of a folder: the members of /status that are on disk."""
    return {
        "log": msgspec.to_builtins(log_status(folder.log, settings)),
        "sources": [
            {name: getattr(each, name) for name in _SOURCE_MEMBERS}
            for each in _sources(settings, folder)
        ],
        "sinks": [
            {
                "name": each.name,
                "type": each.type,
                "flushed": -1 if each.offset is None else each.offset,
                "lag": each.lag(folder.log.end),
                "not_whole": list(each.not_whole),
                "copy_due": each.copy_due,
            }
            for each in folder.sinks
        ],
    }


def _sources(settings: PipeSettings, folder: Folder) -> list[SourceStatus]:
    """Return the sources of the settings as they are on disk."""
    found = []
    for each in settings.sources:
        saved = folder.sources.get(each.name) or SourceCheckpoint(each.log, START, 0)
        begins = is_oplog(each.log) and saved.position == START
        found.append(
            SourceStatus(
                each.name,
                each.log,
                phase="copy" if begins or saved.copy is not None else "sync",
                position=saved.position,
                copied=saved.copied,
                copy_total=saved.copy_total,
            )
        )
    return found


def folder_lines(settings: PipeSettings, folder: Folder) -> list[str]:
    """Return the lines for people, from the folder."""
    hint = (
        "set listen to see those of a running pipe"
        if settings.listen is None
        else _no_answer(settings.listen)
    )
    end = folder.log.end
    sources = [
        (each.name, _phase(each), each.position or "none") for each in _sources(settings, folder)
    ]
    sinks = [
        (
            each.name,
            each.type or "not in the settings",
            "none" if each.offset is None else each.offset,
            each.lag(end),
        )
        for each in folder.sinks
    ]
    return [
        f"pipe: figures from its folder; {hint}",
        _log_line(log_status(folder.log, settings)),
        "",
        *table(["SOURCE", "PHASE", "POSITION"], sources),
        "",
        *table(["SINK", "TYPE", "FLUSHED", "LAG"], sinks, "FLUSHED LAG"),
        *_printed(sentence for each in folder.sinks for sentence in not_whole(each)),
    ]


def live_lines(live: PipeStatus) -> list[str]:
    """Return the lines for people, from a running pipe."""
    sources = [
        (
            each.name,
            _phase(each),
            each.position or "none",
            each.received,
            "connected" if each.connected else "not connected",
        )
        for each in live.sources
    ]
    sinks = [
        (each.name, each.type, each.phase, each.offset, each.flushed, each.lag, _age(each),
         each.written, each.filtered, each.dead, each.retries)
        for each in live.sinks
    ]  # fmt: skip
    counts = "WRITTEN FILTERED DEAD RETRIES"
    return [
        f"pipe: runs for {rough_duration(live.uptime_seconds)}, version {printable(live.version)}",
        _log_line(live.log),
        "",
        *table(["SOURCE", "PHASE", "POSITION", "RECEIVED", ""], sources, "RECEIVED"),
        "",
        *table(
            ["SINK", "TYPE", "PHASE", "OFFSET", "FLUSHED", "LAG", "AGE", *counts.split()],
            sinks,
            f"OFFSET FLUSHED LAG {counts}",
        ),
        *_errors(live),
    ]


def _errors(live: PipeStatus) -> list[str]:
    sentences = [
        *([live.log.waits] if live.log is not None and live.log.waits else []),
        *(f"source {each.name}: {each.error}" for each in live.sources if each.error),
        *(f"sink {each.name}: {each.error}" for each in live.sinks if each.error),
        *(
            f"sink {each.name}: {each.notice}"
            for each in live.sinks
            if each.notice and not each.copy_due  # a sink with a copy due gets a sentence below
        ),
        *(sentence for each in live.sinks for sentence in not_whole(each)),
    ]
    return _printed(sentences)


def _printed(sentences: Iterable[str]) -> list[str]:
    lines = [printable(each) for each in sentences]
    return ["", *lines] if lines else []


def not_whole(sink: SinkStatus | SinkOffsets) -> Iterator[str]:
    """Yield a sentence per copy that a sink lacks, or has not got whole."""
    if sink.copy_due:
        yield f"sink {sink.name}: {GAVE_UP}; {WAITS_FOR_COPY}"
        return
    for source in sink.not_whole:
        yield (
            f"sink {sink.name}: copy not whole: the last copy of {source} lacked messages, or its"
            f" end, for this sink, and nothing was removed; run `{PROGRAM} copy {source}` while the"
            " pipe is stopped"
        )


def _phase(source: SourceStatus) -> str:
    if source.phase != "copy" or not (source.copied or source.copy_total):
        return source.phase
    total = "" if source.copy_total is None else f" of {source.copy_total:,}"
    return f"copy: {source.copied:,}{total}"


def _age(sink: SinkStatus) -> str:
    return rough_duration(sink.lag_seconds) if sink.lag else ""


def _log_line(log: LogStatus | None) -> str:
    if log is None:
        return "log: none, the pipe is on Spark"
    if log.oldest is None:
        return "log: empty"
    bound = "" if log.max_bytes is None else f" of at most {rough_size(log.max_bytes)}"
    where = f"{rough_size(log.bytes)}{bound} in {counted(log.segments, 'segment')}"
    compacted = "" if log.compacted < 0 else f", compacted up to {log.compacted}"
    return f"log: offsets {log.oldest} to {log.end - 1}, {where}{compacted}"
