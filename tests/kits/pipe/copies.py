"""A model of stores, pipes and targets: real commit logs, workers and offset logs, no network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from oplog_pipe.commitlog import CommitLog, OffsetLog
from oplog_pipe.commitlog.codec import size_of
from oplog_pipe.commitlog.offsets import WHOLE_SINCE
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.deliver.letters import DeadLetters
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.steps import FunctionCalls, Steps
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.errors import SinkError
from oplog_pipe.folder.keeper import ManagedSink, SinkKeeper
from oplog_pipe.folder.operate import ended_copies
from oplog_pipe.message import Message, version_of
from oplog_pipe.model.record import EntryRecord, decode_record
from oplog_pipe.model.settings import BatchLimits, SinkSettings
from oplog_pipe.model.wholeness import Wholeness
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.parts.ownership import Owner
from tests.kits.pipe.disk import Disk
from tests.kits.pipe.stores import SOURCE, Key, Source, Store
from tests.kits.processes.logged import DEADLINE

TYPES = ("video", "user")
IDS = "abcd"
FOLDER = Path("/pipe")
_SEGMENT_BYTES = 10**9


class DiedError(BaseException):
    """The process is gone."""


class Row(NamedTuple):
    owner: str | None
    version: int
    source: str
    value: int


Places = dict[str, dict[str, Row]]


class MemorySink:
    """Writes rows as the sinks of databases do. ``before``: called for each message.

    ``removed``: rows that ends of copies have removed, each with the generation.
    """

    def __init__(
        self, places: Places, place: Callable[[Message], str], before: Callable[[Message], None]
    ) -> None:
        self._places = places
        self._place = place
        self._before = before
        self._judged: set[str] = set()
        self.removed: list[tuple[Key, int]] = []
        self.owner: Owner

    def open(self) -> None: ...
    def close(self) -> None: ...
    def begin_copy(self, generation: int, source: str) -> None: ...

    def write(self, messages: Sequence[Message]) -> None:
        for index, each in enumerate(messages):
            name = self._place(each)
            rows = self._places.setdefault(name, {})
            if name not in self._judged:
                own = [row.version for row in rows.values() if row.owner == str(self.owner)]
                self.owner.check(name, max(own, default=None))
                self._judged.add(name)
            row = rows.get(each.id)
            if row is not None and not self.owner.may_write(row.owner):
                raise self.owner.refusal(f"{name} {each.id}", row.owner, index)
            try:
                self._before(each)
            except SinkError as error:
                error.index = index
                raise
            if row is not None and row.version > each.version:
                self.owner.check(name, row.version)
            elif each.op == "delete":
                rows.pop(each.id, None)
            else:
                rows[each.id] = Row(str(self.owner), each.version, each.source, each.data)

    def end_copy(self, generation: int, source: str) -> None:
        me = str(self.owner)
        for place, rows in self._places.items():
            for id, row in list(rows.items()):
                if (row.owner, row.source) == (me, source) and row.version < generation:
                    del rows[id]
                    self.removed.append(((place, id), generation))


@dataclass
class PipeSink:
    """A sink of a pipe and its rules.

    ``missed``: offsets of messages that it never gets. ``first``: offset at which it began.
    ``is_down``: its target is unreachable, so it is parked. ``given_up``: offset up to which it
    has last given up its place.
    """

    name: str
    types: str
    place: Callable[[Message], str]
    change: Callable[[Message], Message | None]
    has_dead_letters: bool
    parks: bool
    missed: set[int] = field(default_factory=set)
    first: int = 0
    is_down: bool = False
    given_up: int = -1

    @property
    def settings(self) -> SinkSettings:
        return SinkSettings(
            self.name, "tests:Sink", CustomOptions("tests:Sink"),
            namespace=f"^({self.types})$", batch=BatchLimits(3, time=0.0), retry_for=0.0,
            on_failure="park" if self.parks else "stop",
        )  # fmt: skip

    def row(self, key: Key) -> Key | None:
        """Return the place and the id of an object. None: the sink does not keep it."""
        if key[0] not in self.types.split("|"):
            return None
        message = Message("insert", 0, key[0], b"0", id=key[1], offset=0, version=0, source=SOURCE)
        changed = self.change(message)
        return None if changed is None else (self.place(changed), changed.id)


class MissedLetters(DeadLetters):
    def __init__(self, missed: set[int]) -> None:
        self._missed = missed

    def add(self, message: Message, reason: str) -> None:
        self._missed.add(message.offset)


def _place(offset: int, offsets: OffsetLog) -> SinkPlace:
    wholeness = Wholeness(offsets.whole_since, offsets.not_whole)
    return SinkPlace(offset, wholeness, copy_due=offsets.copy_due)


class StandingWorker(Worker):
    """A worker that does not run."""

    is_down = False

    @property
    def is_parked(self) -> bool:
        return self.is_down


class ModelPipe:
    """A pipe with a folder in memory. ``refuses``: whether the target refuses a message.

    ``max_bytes``: of the log. ``entries``: all that were ever in the log of the folder.
    """

    def __init__(
        self, name: str, store: Store, sinks: Sequence[PipeSink], places: Places, random: Random,
        clock: Callable[[], int], refuses: Callable[[Message], bool], max_bytes: int | None,
    ) -> None:  # fmt: skip
        self.name = name
        self.store = store
        self.sinks = list(sinks)
        self._places = places
        self._random = random
        self._clock = clock
        self._refuses = refuses
        self._max_bytes = max_bytes
        self.given_up = 0
        self.lose_folder()

    def lose_folder(self) -> None:
        self.disk = Disk()
        self.source = Source(self.store)
        self.entries: list[tuple[int, str, EntryRecord]] = []
        for each in self.sinks:
            each.missed.clear()
            each.first, each.given_up = 0, -1
        self.open().close()

    def replace_store(self, store: Store) -> None:
        """Let the source meet a store after a break: another one, or its own."""
        self.store = store
        self.source.reconnect(store)

    def open(self) -> CommitLog:
        size = _SEGMENT_BYTES if self._max_bytes is None else self._max_bytes // 4
        return CommitLog.open(FOLDER, clock=self._clock, files=self.disk, max_segment_bytes=size)

    def receive(self, count: int, dies_after: int | None = None) -> None:
        """Append what the source brings, once the log has room.

        ``dies_after``: the process dies at this change of the disk, if it makes room.
        """
        log = self.open()
        source = self.source.fork()
        entries = list(source.take(log.end, count))
        if entries and self._make_room(log, size_of(entries), dies_after):
            first = log.append(entries)
            self.source = source
            self.entries += [
                (offset, each.key, decode_record(each.data))
                for offset, each in enumerate(entries, first)
            ]
        log.close()

    def _make_room(self, log: CommitLog, size: int, dies_after: int | None) -> bool:
        """Return whether there is room. Sinks that are down may give up their place."""
        before = {each.name: self._offset(each) for each in self.sinks}
        room = CommitLogRoom(log, self._max_bytes)
        kept = []
        for each in self.sinks:
            offsets = OffsetLog.open(FOLDER, each.name, self.disk)
            worker = StandingWorker(
                each.settings, MemorySink({}, each.place, lambda _: None), Steps([]), log,
                _place(before[each.name], offsets),
            )  # fmt: skip
            worker.is_down = each.is_down
            kept.append(ManagedSink(worker, offsets))
        keeper = SinkKeeper(log, kept, held={}, interval=DEADLINE, room=room)
        room.asked = keeper.make_room
        steps = 0

        def step(_: object) -> None:
            nonlocal steps
            steps += 1
            if steps == dies_after:
                raise DiedError

        self.disk.at_step = step
        try:
            fits = room.wait(size, lambda: room.reason is not None)
        except DiedError:
            fits = False
            keep_bytes, keep_names = (self._random.random() < 0.5 for _ in range(2))
            self.disk = self.disk.after_crash(keep_bytes=keep_bytes, keep_names=keep_names)
        self.disk.at_step = lambda _: None
        for each in self.sinks:
            offset = self._offset(each)
            if offset > before[each.name]:
                self.given_up += 1
                each.given_up = offset
                each.missed |= set(range(before[each.name] + 1, offset + 1))
        return fits

    def _offset(self, sink: PipeSink) -> int:
        offset = OffsetLog.open(FOLDER, sink.name, self.disk).offset
        return -1 if offset is None else offset

    def add(self, sink: PipeSink, start: str) -> None:
        """Add a sink: from the first entry on, at the end, or with a copy for all sinks."""
        self.sinks.append(sink)
        log = self.open()
        if start == "first" and log.compacted >= 0:
            start = "copy"
        sink.first = 0 if start == "first" else log.end
        if start != "first":
            OffsetLog.open(FOLDER, sink.name, self.disk).write(
                {"": log.end - 1, WHOLE_SINCE: log.end - 1}
            )
        if start == "copy":
            self.source.restart()
        log.close()

    def run(self, sink: PipeSink, dies_after: int | None = None) -> None:
        """Run a sink to the end of the log, to a refusal, or until the process dies."""
        log = self.open()
        offsets = OffsetLog.open(FOLDER, sink.name, self.disk)
        is_new = offsets.offset is None
        if is_new:
            offsets.write({"": -1, WHOLE_SINCE: -1})
        assert offsets.offset is not None
        assert offsets.offset >= log.compacted, "entries are gone that it has not given up"
        writes = 0

        def before(message: Message) -> None:
            nonlocal writes
            writes += 1
            if writes == dies_after:
                raise DiedError
            if sink.is_down:
                raise SinkError("the target is unreachable", transient=True)
            if self._refuses(message):
                raise SinkError("the target refuses it")

        target = MemorySink(self._places, sink.place, before)
        target.owner = Owner(self.name, sink.name, lambda: version_of(log.created, log.end - 1))
        worker = Worker(
            sink.settings,
            target,
            Steps([(".*", FunctionCalls("change", sink.change))]),
            log,
            _place(offsets.offset, offsets),
            single_until=-1 if is_new else log.end - 1,
            dead_letters=MissedLetters(sink.missed) if sink.has_dead_letters else None,
        )
        worker.drain()
        worker.start()
        worker.join(DEADLINE)
        if worker.error is not None and not isinstance(worker.error, SinkError | DiedError):
            raise worker.error
        if dies_after is None or self._random.random() < 0.5:  # else its last second is lost
            offsets.write(worker.place.take_unflushed())
            if worker.place.wants_copy:
                self._copy_again(worker, offsets)
        for row, generation in target.removed:
            brought = {
                sink.row((key, record.id))
                for _, key, record in self.entries
                if record.copy is not None
                and version_of(log.created, record.copy) == generation
                and record.op not in ("reset", "live")
            }
            assert row not in brought, f"{row} was in the copy whose end removed it"
        log.close()

    def _copy_again(self, worker: Worker, offsets: OffsetLog) -> None:
        """Let the source begin a copy for a sink that works again, and die before it is noted."""
        due = worker.place.copy_due
        if not self.source.has_copy(due):
            self.source.restart()
        worker.place.begin_copy(due)
        if self._random.random() < 0.7:
            offsets.write(worker.place.take_unflushed())

    def acknowledge_next(self, sink: PipeSink) -> None:
        """Pass over the entry that is next, as ``offset ack`` does."""
        log = self.open()
        offsets = OffsetLog.open(FOLDER, sink.name, self.disk)
        if offsets.offset is not None and offsets.offset < log.end - 1:
            (entry,) = log.read(offsets.offset + 1, max_entries=1)
            ended = ended_copies(log, entry.offset, entry.offset)
            offsets.skip(entry.key, entry.offset, ended)
            sink.missed.add(entry.offset)
        log.close()

    def reset(self, sink: PipeSink, offset: int) -> None:
        log = self.open()
        offsets = OffsetLog.open(FOLDER, sink.name, self.disk)
        if offsets.offset is not None and max(-1, log.compacted) <= offset < log.end:
            sink.missed |= set(range(offsets.offset + 1, offset + 1))
            offsets.reset(offset, ended_copies(log, offsets.offset + 1, offset))
        log.close()

    def state(self, sink: PipeSink) -> tuple[OffsetLog, CommitLog]:
        return OffsetLog.open(FOLDER, sink.name, self.disk), CommitLog.view(FOLDER, files=self.disk)
