"""``oplog-pipe log``: shows entries of the commit log."""

import json
import re
from typing import Any

import click

from oplog_kit.command.options import json_option
from oplog_kit.command.value import Value
from oplog_pipe.commands.options import settings_option
from oplog_pipe.commands.shown import utc
from oplog_pipe.commitlog import CommitLog, LogEntry
from oplog_pipe.errors import LogError
from oplog_pipe.folder.operate import entries, record_of, view
from oplog_pipe.model.settings import PipeSettings
from oplogc.http.answers import printable


def _range(text: str) -> tuple[int, int]:
    """Return the first and the last offset of ``X`` or ``X..Y``. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,30})(?:\.\.([0-9]{1,30}))?", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is no offset such as 12, and no range such as 12..20")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"{text!r} ends before it begins")
    return first, last


@click.group()
def log() -> None:
    """Show entries of the commit log."""


@log.command()
@settings_option()
@json_option
def oldest(settings: PipeSettings, as_json: bool) -> None:
    """Print the offset of the oldest entry."""
    found = view(settings).log
    _print_offset(found.oldest, as_json)


@log.command()
@settings_option()
@json_option
def current(settings: PipeSettings, as_json: bool) -> None:
    """Print the offset of the newest entry."""
    found = view(settings).log
    _print_offset(None if found.oldest is None else found.end - 1, as_json)


def _print_offset(offset: int | None, as_json: bool) -> None:
    """Raises LogError."""
    if as_json:
        print(json.dumps({"offset": offset}))
    elif offset is None:
        raise LogError("the log is empty")
    else:
        print(offset)


@log.command()
@click.argument("offsets", metavar="X[..Y]", type=Value("X[..Y]", _range))
@settings_option()
@json_option
def show(offsets: tuple[int, int], settings: PipeSettings, as_json: bool) -> None:
    """Print the entry X, or the entries from X to Y.

    One entry takes a line per field; of several each takes one line: offset, timestamp, mode, op,
    namespace, id, data. --json prints one object per line. Entries that a compaction has removed
    are left out. Exit code 1 if none is there.
    """
    first, last = offsets
    log = view(settings).log
    is_there = False
    for entry in entries(log, first, last):
        is_there = True
        if as_json:
            print(json.dumps(members(entry), ensure_ascii=False))
        elif first == last:
            print("\n".join(_fields(entry)))
        else:
            print(_line(entry))
    if not is_there:
        raise LogError(_missing(log, first, last))


def members(entry: LogEntry) -> dict[str, Any]:
    """Return the JSON of an entry. Raises LogDamagedError."""
    record = record_of(entry)
    return {
        "offset": entry.offset,
        "timestamp": entry.timestamp,
        "mode": entry.mode.name.lower(),
        "namespace": entry.key,
        "op": record.op,
        "id": record.id,
        "source": record.source,
        "position": record.position,
        "copy": record.copy,
        "data": json.loads(bytes(record.data) or b"null"),
    }


def _fields(entry: LogEntry) -> list[str]:
    found = members(entry)
    found["timestamp"] = f"{utc(entry.timestamp)} ({entry.timestamp})"
    found["data"] = bytes(record_of(entry).data).decode()
    if entry.key.startswith("source//"):  # of `reset` and `live`
        found["namespace"] = ""
    return [
        f"{name + ':':<10} {printable(str(value))}"
        for name, value in found.items()
        if value not in (None, "")
    ]


def _line(entry: LogEntry) -> str:
    record = record_of(entry)
    parts = [str(entry.offset), utc(entry.timestamp), f"{entry.mode.name.lower():<8}"]
    if record.op in ("reset", "live"):
        parts += [record.op, record.source]
    else:
        parts += [f"{record.op:<6}", entry.key, record.id, bytes(record.data).decode()]
    return printable("  ".join(parts))


def _missing(log: CommitLog, first: int, last: int) -> str:
    asked = f"entry {first}" if first == last else f"entry from {first} to {last}"
    if log.oldest is None:
        return f"there is no {asked}: the log is empty"
    if first >= log.end:
        return f"there is no {asked}: the newest one is {log.end - 1}"
    return f"there is no {asked} any more: the log is compacted up to {log.compacted}"
