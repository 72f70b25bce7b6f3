"""Allowed settings that leave old objects in a target, or remove present ones."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from oplog_pipe.commitlog.offsets import OffsetLog
from oplog_pipe.errors import LogError
from oplog_pipe.folder.fingerprint import former_sources
from oplog_pipe.follow.checkpoints import Checkpoints
from oplog_pipe.model.checks import is_literal
from oplog_pipe.model.settings import (
    OPLOG,
    FunctionStep,
    PipeSettings,
    SinkSettings,
    SourceSettings,
)


def remarks(settings: PipeSettings) -> list[str]:
    """Return a sentence for each questionable sink and source. Changes nothing."""
    return [*left_behind(settings), *shared(settings)]


def left_behind(settings: PipeSettings) -> Iterator[str]:
    """Yield a sentence for each former source of a sink."""
    names = {each.name for each in settings.sources}
    for sink in settings.sinks:
        if sink.options.is_history:
            continue
        try:
            found = former_sources(OffsetLog.view(settings.dir, sink.name).settings)
        except LogError:
            continue  # the process that opens the folder to write tells it
        for name in sorted(found - names):
            if not _is_of_topic(settings.dir, name):
                yield (
                    f"sink {sink.name!r}: no source has the name {name!r} any more: its objects"
                    " stay in the target, and no copy removes those that are gone; if it has"
                    f" another name now, give it `name: {name}` back"
                )


def shared(settings: PipeSettings) -> Iterator[str]:
    """Yield a sentence for each sink in which objects of two stores have one place."""
    stores = [each for each in settings.sources if each.log == OPLOG]
    for sink in settings.sinks:
        if not _has_places(sink):
            continue
        for one, other in itertools.combinations(stores, 2):
            if _may_meet(sink, one, other):
                yield (
                    f"sink {sink.name!r}: objects of the sources {one.name!r} and {other.name!r}"
                    " with the same type and id have one place: a deletion in one store removes"
                    " the object of the other; give each store a pipe and a target of its own,"
                    " or set namespace of the sources to different types, such as ^video$"
                )


def _is_of_topic(folder: Path, name: str) -> bool:
    """Return whether a former source followed a topic: its messages are no objects."""
    try:
        found = Checkpoints(folder).load(name)
    except LogError:
        return False
    return found is not None and found.log != OPLOG


def _has_places(sink: SinkSettings) -> bool:
    """Return whether an object has one place in the target, whichever source it comes from."""
    if any(isinstance(each, FunctionStep) for each in sink.transforms):
        return False  # it may give each source places of its own
    mirrored = sink.options.mirrored()
    return bool(sink.options.place) or (mirrored is not None and mirrored[1] == OPLOG)


def _may_meet(sink: SinkSettings, *sources: SourceSettings) -> bool:
    """Return whether a namespace may match all: it does not if two of them name different ones."""
    patterns = {sink.namespace, *(each.namespace for each in sources)}
    return sum(map(is_literal, patterns)) < 2
