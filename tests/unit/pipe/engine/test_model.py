"""Random crashes: what a sink gets after them, compared with a model."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplog_pipe.commitlog import CommitLog, OffsetLog
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.folder.keeper import ManagedSink, SinkKeeper
from oplog_pipe.model.settings import BatchLimits
from tests.kits.models.properties import examples
from tests.kits.pipe.disk import Disk
from tests.unit.pipe.engine.engine import DEADLINE, LONG, RecordingSink, change, sink

FOLDER = Path("/pipe")
SINKS = {"all": "abc", "some": "ac", "none": ""}


class Round(NamedTuple):
    """A life of the process. ``appended``: a namespace for each entry.

    ``flushes``: at these writes, offsets are flushed. ``crash``: the process dies in this write,
    which the sink has taken; 0: it stops well. ``batch``: messages.
    """

    appended: str
    flushes: set[int]
    crash: int
    batch: int
    compacts: bool


class DiedError(BaseException):
    """The process is gone."""


rounds = st.builds(
    Round,
    st.text("abc", max_size=8),
    st.sets(st.integers(1, 8)),
    st.integers(0, 6),
    st.integers(1, 4),
    st.booleans(),
)


@pytest.mark.thorough
@examples()
@given(st.lists(rounds, min_size=1, max_size=5))
@example([Round("abcabcab", {2}, 3, 2, True), Round("ab", set(), 0, 2, True)])
def test_every_sink_gets_all_of_its_messages_in_order_from_its_flushed_offset_on(
    lives: list[Round],
) -> None:
    disk, entries = Disk(), ""
    delivered: dict[str, set[int]] = {each: set() for each in SINKS}
    for life in (*lives, Round("", set(), 0, 3, False)):
        # Small segments: nearly each life leaves closed ones.
        log = CommitLog.open(FOLDER, max_segment_bytes=200, files=disk)
        if life.appended:
            log.append([change(namespace) for namespace in life.appended])
        entries += life.appended
        kept = [_run(disk, log, name, life, entries, delivered[name]) for name in SINKS]
        if life.compacts:
            SinkKeeper(log, kept, held={}, interval=LONG).compact()
        log.close()
    for name, namespaces in SINKS.items():
        assert delivered[name] == {*_matching(entries, namespaces, -1)}
        assert OffsetLog.view(FOLDER, name, disk).offset == (len(entries) - 1 if entries else None)


def _run(
    disk: Disk, log: CommitLog, name: str, life: Round, entries: str, delivered: set[int]
) -> ManagedSink:
    """Run a sink until the end of the log or its crash. Return it with its offsets on disk."""
    offsets = OffsetLog.open(FOLDER, name, disk)
    start = -1 if offsets.offset is None else offsets.offset
    target = RecordingSink(name)
    worker = Worker(
        sink(name, namespace=f"^[{SINKS[name]}x]$", batch=BatchLimits(life.batch, time=0.0)),
        target,
        Steps([]),
        log,
        SinkPlace(start, ready_at=log.end - 1),
        single_until=-1 if offsets.offset is None else log.end - 1,
    )
    keeper = SinkKeeper(log, [ManagedSink(worker, offsets)], held={}, interval=LONG)
    writes = 0

    def before(written: list[int]) -> None:
        nonlocal writes
        writes += 1
        if writes in life.flushes:
            keeper.flush()
        delivered.update(written)
        if writes == life.crash:
            target.calls.append(written)
            raise DiedError

    target.before = before
    worker.drain()
    worker.start()
    worker.join(DEADLINE)
    died = isinstance(worker.error, DiedError)
    assert died or worker.error is None
    if not died:
        keeper.flush()

    expected = _matching(entries, SINKS[name], start)
    assert target.offsets == (expected[: len(target.offsets)] if died else expected)
    on_disk = OffsetLog.view(FOLDER, name, disk).offset
    reached = -1 if on_disk is None else on_disk
    assert {*_matching(entries[: reached + 1], SINKS[name], -1)} <= delivered
    # A compaction reads offsets of this start: it knows no others of the process that died.
    after = OffsetLog.open(FOLDER, name, disk)
    return ManagedSink(Worker(sink(name), target, Steps([]), log, SinkPlace(reached)), after)


def _matching(entries: str, namespaces: str, after: int) -> list[int]:
    return [at for at, each in enumerate(entries) if at > after and each in namespaces]
