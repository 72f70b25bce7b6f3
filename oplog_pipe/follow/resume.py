"""Finds the position from which each source resumes: of its checkpoint, or of a later entry."""

from collections.abc import Sequence

from msgspec.structs import replace

from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.long_read import LongRead
from oplog_pipe.errors import ConfigError, LogDamagedError
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.follow.streams import START
from oplog_pipe.model.record import EntryRecord, decode_record
from oplog_pipe.model.settings import SourceSettings


def resume(
    settings: Sequence[SourceSettings], log: CommitLog, checkpoints: Checkpoints
) -> dict[str, SourceCheckpoint]:
    """Return the present state of each source, by name.

    Entries appended after a checkpoint count; without a checkpoint, all entries. Raises ConfigError
    if a source has another log than before, LogDamagedError, LogError.
    """
    found: dict[str, SourceCheckpoint] = {}
    for source in settings:
        saved = checkpoints.load(source.name)
        if saved is not None:
            _check(source, saved, log.end, checkpoints)
        found[source.name] = saved or SourceCheckpoint(source.log, START, 0)
    ends = {name: each.end for name, each in found.items()}
    offset = first = min(ends.values(), default=log.end)
    names = ", ".join(name for name, end in ends.items() if end == first)
    progress = LongRead(f"looking in the log for the position of {names}", log.end - first)
    while entries := log.read(offset):
        for entry in entries:
            record = decode_record(entry.data)
            if entry.offset >= ends.get(record.source, log.end):
                found[record.source] = behind(found[record.source], record, entry.offset)
        offset = entries[-1].offset + 1
        progress.at(offset - first)
    return found


def behind(before: SourceCheckpoint, record: EntryRecord, offset: int) -> SourceCheckpoint:
    """Return the state of a source behind an entry of it."""
    now = replace(before, position=record.position, end=offset + 1)
    if record.op == "reset":
        return replace(now, copy=offset, copied=0, copy_total=None)
    copied = before.copied + (record.copy is not None and record.op != "live")
    return replace(now, copy=None if record.op == "live" else record.copy, copied=copied)


def _check(
    source: SourceSettings, saved: SourceCheckpoint, end: int, checkpoints: Checkpoints
) -> None:
    if saved.log != source.log:
        raise ConfigError(
            f"the source {source.name!r} follows {source.log!r}, but its position in this folder "
            f"is one of {saved.log!r}: give the source another name"
        )
    if saved.end > end:
        raise LogDamagedError(
            f"{checkpoints.path(source.name)} was saved when the log had {saved.end} entries, but "
            f"the log ends at {end}: segments are missing"
        )
