"""``oplog-pipe offset``: shows and changes the offsets of sinks."""

import json
from typing import Any

import click

from oplog_kit.command.convert import count
from oplog_kit.command.options import json_option
from oplog_kit.command.value import Value
from oplog_pipe.commands.options import settings_option
from oplog_pipe.commands.shown import table
from oplog_pipe.commands.status import not_whole
from oplog_pipe.folder import operate
from oplog_pipe.folder.operate import SinkOffsets
from oplog_pipe.model.settings import PipeSettings
from oplogc.http.answers import printable

_NEGATIVE = {"ignore_unknown_options": True}


@click.group()
def offset() -> None:
    """Show and change the flushed offsets of sinks."""


@offset.command("list")
@settings_option()
@json_option
def list_(settings: PipeSettings, as_json: bool) -> None:
    """Print the offset of each sink in the settings or in the folder."""
    folder = operate.view(settings)
    end = folder.log.end
    if as_json:
        print(json.dumps([members(each, end) for each in folder.sinks]))
        return
    rows = [(each.name, _offset(each), each.lag(end), _note(each)) for each in folder.sinks]
    print("\n".join(table(["SINK", "OFFSET", "LAG", ""], rows, "OFFSET LAG")))


@offset.command()
@click.argument("name", metavar="NAME")
@settings_option()
@json_option
def show(name: str, settings: PipeSettings, as_json: bool) -> None:
    """Print the offset of a sink, and the one of each namespace."""
    operate.check_name(settings, name)
    folder = operate.view(settings)
    (found,) = (each for each in folder.sinks if each.name == name)
    if as_json:
        print(json.dumps({**members(found, folder.log.end), "namespaces": found.namespaces}))
        return
    note = f" ({_note(found)})" if _note(found) else ""
    print(f"{name}: offset {_offset(found)}, lag {found.lag(folder.log.end)}{note}")
    rows = [(key, number) for key, number in sorted(found.namespaces.items()) if key]
    if rows:
        print("\n".join(table(["NAMESPACE", "OFFSET"], rows, "OFFSET")))


@offset.command()
@click.argument("name", metavar="NAME")
@click.argument("number", metavar="OFFSET", type=Value("OFFSET", count(0)))
@settings_option()
@click.option("--force", is_flag=True, help="Acknowledge all entries up to OFFSET.")
def ack(name: str, number: int, settings: PipeSettings, force: bool) -> None:
    """Acknowledge the entry that is next for a sink, which then never gets it.

    For a message that a sink refuses. The pipe must be stopped. Any other offset is refused, so
    that a typing error skips nothing.
    """
    entry = operate.acknowledge(settings, name, number, force=force)
    record = operate.record_of(entry)
    what = f"{entry.key} {record.id}" if record.op not in ("reset", "live") else record.source
    print(printable(f"{name}: offset {number}; passed over: {record.op} {what}"))
    _tell_not_whole(settings, name)


@offset.command(context_settings=_NEGATIVE)
@click.argument("name", metavar="NAME")
@click.argument("number", metavar="OFFSET", type=Value("OFFSET", count(-1)))
@settings_option()
def reset(name: str, number: int, settings: PipeSettings) -> None:
    """Let a sink continue behind an offset. -1: from the beginning.

    The pipe must be stopped. Refused if the log is compacted beyond OFFSET.
    """
    before = operate.reset(settings, name, number)
    print(f"{name}: offset {number}; before: {'none' if before is None else before}")
    _tell_not_whole(settings, name)


@offset.command()
@click.argument("name", metavar="NAME")
@settings_option()
def delete(name: str, settings: PipeSettings) -> None:
    """Delete the offset log of a sink, so that it no longer holds compaction back.

    The pipe must be stopped. A sink in the settings is new at the next start.
    """
    number = operate.delete(settings, name)
    is_known = any(sink.name == name for sink in settings.sinks)
    note = "; it is new at the next start" if is_known else ""
    print(f"{name}: deleted, its offset was {number}{note}")


def members(found: SinkOffsets, end: int) -> dict[str, Any]:
    """Return the JSON of a sink."""
    return {
        "name": found.name,
        "type": found.type,
        "offset": found.offset,
        "lag": found.lag(end),
        "in_settings": found.type is not None,
        "copy_due": found.copy_due,
    }


def _tell_not_whole(settings: PipeSettings, name: str) -> None:
    for sentence in not_whole(operate.offsets_of(settings, name)):
        print(printable(sentence))


def _offset(found: SinkOffsets) -> str:
    return "none" if found.offset is None else str(found.offset)


def _note(found: SinkOffsets) -> str:
    if found.type is None:
        return "not in the settings: holds compaction back"
    return "gave up its place: gets a copy once it has written a message" if found.copy_due else ""
