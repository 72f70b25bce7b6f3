"""Reads and changes the folder of a pipe for the commands."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from oplog_pipe.commitlog import CommitLog, LogEntry, OffsetLog
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.errors import ConfigError, LogDamagedError, LogLockedError
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.follow.streams import START, is_oplog
from oplog_pipe.model.record import EntryRecord, decode_record, is_control_key
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.model.status import LogStatus


@dataclass(frozen=True)
class SinkOffsets:
    """``type``: None: the sink is not in the settings. ``offset``: None: nothing was flushed.

    ``not_whole``, ``copy_due``: see ``SinkStatus``.
    """

    name: str
    type: str | None
    offset: int | None
    namespaces: Mapping[str, int]
    not_whole: Sequence[str] = ()
    copy_due: bool = False

    def lag(self, end: int) -> int:
        """Return the number of offsets from this one to the end of the log."""
        return max(end - 1 - (-1 if self.offset is None else self.offset), 0)


@dataclass(frozen=True)
class Folder:
    """The folder of a pipe at one moment. ``sources``: without sources that never began."""

    log: CommitLog
    sinks: list[SinkOffsets]
    sources: Mapping[str, SourceCheckpoint] = field(default_factory=dict)


def view(settings: PipeSettings) -> Folder:
    """Read the folder without the lock, also while a pipe runs. Raises NoLogError, LogError."""
    checkpoints = Checkpoints(settings.dir)
    sources = {name: checkpoints.load(name) for name in checkpoints.names()}
    # Offsets before the log: they may not be larger than its end.
    sinks = [offsets_of(settings, name) for name in sink_names(settings)]
    present = {name: each for name, each in sources.items() if each}
    return Folder(CommitLog.view(settings.dir), sinks, present)


def sink_names(settings: PipeSettings) -> list[str]:
    """Return the names of the settings, and the others in the folder."""
    names = [sink.name for sink in settings.sinks]
    return [*names, *(each for each in OffsetLog.names(settings.dir) if each not in names)]


def offsets_of(settings: PipeSettings, name: str) -> SinkOffsets:
    """Return the flushed offsets of a sink. Raises ConfigError for an unknown name, LogError."""
    check_name(settings, name)
    log = OffsetLog.view(settings.dir, name)
    kind = next((each.type for each in settings.sinks if each.name == name), None)
    return SinkOffsets(name, kind, log.offset, log.offsets, log.not_whole, log.copy_due >= 0)


def check_name(settings: PipeSettings, name: str) -> None:
    """Raises ConfigError."""
    names = sink_names(settings)
    if name not in names:
        raise ConfigError(f"NAME: there is no sink {name!r}; known: {', '.join(names)}")


def log_status(log: CommitLog, settings: PipeSettings) -> LogStatus:
    return CommitLogRoom(log, settings.max_log_bytes).status()


def record_of(entry: LogEntry) -> EntryRecord:
    """Raises LogDamagedError."""
    try:
        return decode_record(entry.data)
    except msgspec.DecodeError as error:
        raise LogDamagedError(f"the entry {entry.offset} is no record: {error}") from None


def entries(log: CommitLog, first: int, last: int) -> Iterator[LogEntry]:
    """Yield the present entries from ``first`` to ``last``. Raises LogError."""
    while first <= last and (found := log.read(first)):
        yield from (each for each in found if each.offset <= last)
        first = found[-1].offset + 1


def ended_copies(log: CommitLog, first: int, last: int) -> set[str]:
    """Return the sources of which the end of a copy is from ``first`` to ``last``.

    Raises LogError, LogDamagedError.
    """
    controls = (each for each in entries(log, first, last) if is_control_key(each.key))
    records = map(record_of, controls)
    return {each.source for each in records if each.op == "live" and each.copy is not None}


def acknowledge(settings: PipeSettings, name: str, offset: int, *, force: bool) -> LogEntry:
    """Acknowledge the next entry of a sink, and flush. Return the entry.

    A copy under way, or with its end in these entries, is then not whole for this sink.
    ``force``: also an entry behind the next one. The sink never gets those between. Raises
    ConfigError, LogLockedError while a pipe runs, LogError.
    """
    with _locked(settings, name) as (log, offsets):
        if offsets.offset is None and log.compacted >= 0:
            raise ConfigError(f"OFFSET: {name} has no offset yet: start the pipe first")
        acknowledged = -1 if offsets.offset is None else offsets.offset
        if offset <= acknowledged:
            raise ConfigError(
                f"OFFSET: {name} has acknowledged {offset}: its offset is {acknowledged};"
                " use `offset reset` to go back"
            )
        following = log.read(acknowledged + 1, max_entries=1)
        if not following:
            raise ConfigError(f"OFFSET: {name} has acknowledged every entry of the log")
        if offset != following[0].offset and not force:
            raise ConfigError(
                f"OFFSET: the next entry of {name} is {following[0].offset}, not {offset};"
                " --force passes over those between"
            )
        entry = log.entry(offset)
        if entry is None:
            raise ConfigError(f"OFFSET: the log has no entry {offset}: {_extent(log)}")
        offsets.skip(entry.key, offset, ended_copies(log, acknowledged + 1, offset))
        return entry


def reset(settings: PipeSettings, name: str, offset: int) -> int | None:
    """Let a sink continue behind an offset; -1: from offset 0 on. Return its offset before.

    Raises ConfigError, LogLockedError while a pipe runs, LogError.
    """
    with _locked(settings, name) as (log, offsets):
        if offset < log.compacted:
            raise ConfigError(
                f"OFFSET: entries behind {offset} are gone: the log is compacted up to"
                f" {log.compacted}; use `offset delete` and `start: copy` for all objects"
            )
        if offset >= log.end:
            raise ConfigError(f"OFFSET: the log has no entry {offset}: {_extent(log)}")
        before = offsets.offset
        first = 0 if before is None else before + 1
        offsets.reset(offset, ended_copies(log, first, offset))
        return before


def delete(settings: PipeSettings, name: str) -> int:
    """Remove the offset log of a sink. Return the offset.

    Raises ConfigError for a sink without one, LogLockedError while a pipe runs, LogError.
    """
    with _locked(settings, name) as (_, offsets):
        if offsets.offset is None:
            raise ConfigError(f"NAME: {name} has no offset log")
        offsets.close()
        OffsetLog.delete(settings.dir, name)
        return offsets.offset


def copy_again(settings: PipeSettings, names: Sequence[str]) -> list[str]:
    """Let sources copy all objects at the next start; none given: all with copies. Return names.

    Raises ConfigError for an unknown source or a topic, LogLockedError while a pipe runs, LogError.
    """
    sources = {each.name: each for each in settings.sources}
    for name in names:
        if name not in sources:
            raise ConfigError(f"SOURCE: there is no source {name!r}; known: {', '.join(sources)}")
        if not is_oplog(sources[name].log):
            raise ConfigError(f"SOURCE: {name!r} follows a topic; topics have no copy")
    chosen = list(names) or [each.name for each in settings.sources if is_oplog(each.log)]
    if not chosen:
        raise ConfigError("sources: all of them are topics, which have no copy")
    with locked_log(settings) as log:
        for name in chosen:
            checkpoint = SourceCheckpoint(sources[name].log, START, log.end)
            Checkpoints(settings.dir).save(name, checkpoint)
    return chosen


@contextmanager
def locked_log(settings: PipeSettings) -> Iterator[CommitLog]:
    """Open the log alone. Raises LogLockedError while a pipe runs, LogError: also without a log."""
    CommitLog.view(settings.dir)  # raises if there is none: the next line would create it
    try:
        log = CommitLog.open(settings.dir, max_segment_bytes=settings.segment_bytes)
    except LogLockedError:
        raise LogLockedError(f"{settings.dir} is in use: a pipe runs; stop it first") from None
    try:
        yield log
    finally:
        log.close()


@contextmanager
def _locked(settings: PipeSettings, name: str) -> Iterator[tuple[CommitLog, OffsetLog]]:
    """Open the log and the offsets of a sink, alone."""
    with locked_log(settings) as log:
        check_name(settings, name)
        offsets = OffsetLog.open(settings.dir, name)
        try:
            yield log, offsets
        finally:
            offsets.close()


def _extent(log: CommitLog) -> str:
    oldest = log.oldest
    return "it is empty" if oldest is None else f"it has {oldest} to {log.end - 1}"
