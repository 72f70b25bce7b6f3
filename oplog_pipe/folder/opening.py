"""Makes the sinks of the settings and their workers, and tells what starts."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from oplog_kit.wording import counted
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.deliver.delivery import FOR_EVER
from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.deliver.steps import Steps, build_steps
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.folder.remarks import remarks
from oplog_pipe.folder.start import Start, owner_of
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.settings import OPLOG, PipeSettings, SinkSettings
from oplog_pipe.model.status import GAVE_UP, WAITS_FOR_COPY
from oplog_pipe.model.wholeness import Wholeness
from oplog_pipe.sinks.base import Mirroring, Owned, Sink

Build = Callable[[SinkSettings, Path], Sink]

logger = logging.getLogger("oplog_pipe")


class Made(NamedTuple):
    sink: Sink
    steps: Steps


def make_sinks(settings: PipeSettings, build: Build) -> list[Made]:
    """Return each sink with its steps. Raises ConfigError."""
    root, sinks = settings.root, settings.sinks
    steps = [build_steps(each, root, f"sinks[{at}]") for at, each in enumerate(sinks)]
    return [Made(build(each, root), own) for each, own in zip(sinks, steps, strict=True)]


def make_workers(
    settings: PipeSettings,
    made: Sequence[Made],
    log: CommitLog,
    starts: Sequence[Start],
    *,
    one_at_a_time: bool,
    changed: Callable[[], None],
    clock: RetryClock,
) -> list[Worker]:
    """Return a worker for each sink. They have not started."""
    end = log.end - 1
    workers = []
    for each, (sink, steps), start in zip(settings.sinks, made, starts, strict=True):
        if isinstance(sink, Owned):
            sink.own(owner_of(settings, each, log))
        if isinstance(sink, Mirroring):
            sink.mirror(f"{log.id}/{each.name}")
        single_until = -1 if start.is_new else end
        place = SinkPlace(
            start.offset,
            Wholeness(start.whole_since, start.offsets.not_whole),
            copy_due=start.offsets.copy_due,
            ready_at=single_until,
            changed=changed,
        )
        dead = each.dead_letter
        worker = Worker(
            each, sink, steps, log, place,
            single_until=FOR_EVER if one_at_a_time else single_until,
            dead_letters=DeadLetters(settings.root / dead) if dead else None,
            changed=changed, clock=clock,
        )  # fmt: skip
        workers.append(worker)
    return workers


def tell_start(settings: PipeSettings, log: CommitLog, workers: Sequence[Worker]) -> bool:
    """Log what starts. Return whether the sources wait for backlogs."""
    logger.info(
        "folder %s, %s; sources: %s; sinks: %s",
        settings.dir, counted(log.end, "entry", "entries"),
        ", ".join(each.name for each in settings.sources),
        ", ".join(f"{each.name} ({each.type})" for each in settings.sinks),
    )  # fmt: skip
    for name in [each.name for each in workers if each.place.copy_due >= 0]:
        if any(each.log == OPLOG for each in settings.sources):
            logger.warning("sink %r %s; %s", name, GAVE_UP, WAITS_FOR_COPY)
        else:
            logger.error(
                "sink %r %s; no source of %s is in the settings that could copy the objects again:"
                " add one to sources, or remove the sink and run `%s offset delete %s`",
                name, GAVE_UP, OPLOG, PROGRAM, name,
            )  # fmt: skip
    for sentence in remarks(settings):
        logger.warning("%s", sentence)
    waiting = [each for each in workers if not each.place.is_ready]
    if waiting:
        logger.info(
            "recovery: the sources wait until sinks have written their backlogs, one message"
            " at a time: %s",
            ", ".join(f"{each.name} {log.end - 1 - each.place.offset:,}" for each in waiting),
        )
    return bool(waiting)
