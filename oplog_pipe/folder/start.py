"""Decides from which offset each sink continues."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.offsets import WHOLE_SINCE, OffsetLog
from oplog_pipe.errors import ConfigError
from oplog_pipe.folder.fingerprint import fingerprints
from oplog_pipe.follow.sources import Sources
from oplog_pipe.message import version_of
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.settings import OPLOG, PipeSettings, SinkSettings, SourceSettings
from oplog_pipe.sinks.parts.ownership import Owner

logger = logging.getLogger("oplog_pipe")


@dataclass(frozen=True)
class Start:
    """``offset``: last acknowledged, -1: none. ``is_new``: the folder did not know the sink.

    ``whole_since``: the sink gets every message behind this offset.
    """

    offsets: OffsetLog
    offset: int
    is_new: bool
    whole_since: int


def owner_of(settings: PipeSettings, sink: SinkSettings, log: CommitLog) -> Owner:
    """Return the owner of the rows of a sink."""
    return Owner(settings.name or log.id, sink.name, lambda: version_of(log.created, log.end - 1))


def begin(settings: PipeSettings, log: CommitLog, sources: Sources) -> list[Start]:
    """Return the start of each sink. A new one gets its offset log.

    Raises ConfigError for a sink with a gap before its entries. Then nothing has changed.
    """
    starts = []
    needs_copy = False
    for number, sink in enumerate(settings.sinks):
        place, offsets = f"sinks[{number}]", OffsetLog.open(settings.dir, sink.name)
        changed = _changes(sink, settings.sources, offsets)
        if offsets.offset is None:
            offset = whole_since = _first_offset(place, sink, settings.sources, log)
        else:
            offset = _checked(place, sink, offsets.offset, log)
            # Changed settings hold from the end of the log on: a copy under way is not whole.
            whole_since = log.end - 1 if changed else offsets.whole_since
        if changed:
            _check_changes(place, sink, settings.sources, changed)
        start = Start(offsets, offset, offsets.offset is None, whole_since)
        starts.append(start)
        needs_copy |= sink.start == "copy" and (start.is_new or bool(changed))
    # Before the offsets: after a crash in between the copy begins again.
    if log.end and needs_copy:
        sources.restart_copy([each.name for each in settings.sources if each.log == OPLOG])
    for sink, start in zip(settings.sinks, starts, strict=True):
        if start.is_new:
            # After a stop before its first flush, a sink must not be new again.
            start.offsets.write({"": start.offset, WHOLE_SINCE: start.offset})
        numbers = fingerprints(sink, settings.sources)
        if not numbers.items() <= start.offsets.settings.items():
            start.offsets.note_settings(numbers, start.whole_since)
    return starts


def _changes(
    sink: SinkSettings, sources: Sequence[SourceSettings], offsets: OffsetLog
) -> list[str]:
    """Return the parts of the settings changed since the last use of the sink."""
    before = offsets.settings
    return [
        name
        for name, number in fingerprints(sink, sources).items()
        if before.get(name, number) != number
    ]


def _check_changes(
    place: str, sink: SinkSettings, sources: Sequence[SourceSettings], changed: Sequence[str]
) -> None:
    """Raise ConfigError if objects would be missing, or left over, without a word."""
    if sink.start is None:
        raise ConfigError(
            f"{place}: settings of sink {sink.name!r} have changed that decide which rows go where:"
            f" {', '.join(changed)}. Its target has rows of the former settings. Set start: copy,"
            " to copy all objects again, or start: end, to go on without a copy"
        )
    if sink.start == "copy":
        _check_copy(place, sink, sources)
    logger.warning(
        "sink %r: settings have changed: %s; its target keeps rows that the former settings have"
        " written elsewhere", sink.name, ", ".join(changed),
    )  # fmt: skip


def _first_offset(
    place: str, sink: SinkSettings, sources: Sequence[SourceSettings], log: CommitLog
) -> int:
    if sink.start == "end":
        return log.end - 1
    if sink.start == "copy" and log.end:
        _check_copy(place, sink, sources)
        return log.end - 1
    if log.compacted >= 0:
        raise ConfigError(
            f"{place}.start: sink {sink.name!r} is new, and the log is compacted up to offset"
            f" {log.compacted}: set start: copy, to copy all objects again, or start: end"
        )
    return -1


def _check_copy(place: str, sink: SinkSettings, sources: Sequence[SourceSettings]) -> None:
    if all(each.log != OPLOG for each in sources):
        raise ConfigError(f"{place}.start: copy needs a source of {OPLOG}; topics have no copy")
    for topic in topics_of(sink, sources):
        raise ConfigError(
            f"{place}.start: copy would leave out older messages of the topic {topic}, and"
            f" the namespace of sink {sink.name!r} matches it: set start: end, or another"
            " namespace"
        )


def topics_of(sink: SinkSettings, sources: Sequence[SourceSettings]) -> list[str]:
    """Return the topics whose messages a sink gets. No copy brings these messages again."""
    return [
        each.log
        for each in sources
        if each.log != OPLOG
        and re.search(each.namespace, each.log)
        and re.search(sink.namespace, each.log)
    ]


def _checked(place: str, sink: SinkSettings, offset: int, log: CommitLog) -> int:
    if offset < log.compacted:
        fault = f"is compacted up to {log.compacted}: entries are gone"
    elif offset >= log.end:
        fault = f"ends at {log.end - 1}: it is not the log that the sink has read"
    else:
        return offset
    raise ConfigError(
        f"{place}: sink {sink.name!r} is at offset {offset}, and the log {fault}. Run"
        f" `{PROGRAM} offset delete {sink.name}`, and set start: copy or start: end"
    )


def held_by_others(folder: Path, sinks: Sequence[SinkSettings]) -> dict[str, int]:
    """Return the offsets of sinks outside the settings, by name.

    Their offsets hold compaction back, and a warning tells it.
    """
    names = {each.name for each in sinks}
    found = {}
    for name in OffsetLog.names(folder):
        if name in names:
            continue
        offset = OffsetLog.view(folder, name).offset
        found[name] = -1 if offset is None else offset
        logger.warning(
            "sink %r is not in the settings, and its offset %d holds compaction back; if it does"
            " not come back, run `%s offset delete %s`",
            name, found[name], PROGRAM, name,
        )  # fmt: skip
    return found
