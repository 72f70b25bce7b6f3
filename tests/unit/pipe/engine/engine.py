"""A folder with a real commit log, sinks that record, and pipes that run over them."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Raw

from oplog_pipe.commitlog import CommitLog, Mode, NewEntry, OffsetLog
from oplog_pipe.commitlog.offsets import WHOLE_SINCE
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.follow.sources import Sources
from oplog_pipe.message import Message
from oplog_pipe.model.record import EntryRecord, control_key, encode_record
from oplog_pipe.model.settings import BatchLimits, PipeSettings, SinkSettings, SourceSettings
from oplog_pipe.model.status import LogStatus, SourceStatus
from oplog_pipe.pipe import Pipe
from oplog_pipe.sinks.custom import CustomOptions
from tests.kits.processes.logged import DEADLINE as DEADLINE

CREATED = 1_700_000_000_000
# Never reached in a test.
LONG = 3600.0
AT_ONCE = BatchLimits(time=0.0)


def sink(name: str, **settings: Any) -> SinkSettings:
    return replace(
        SinkSettings(name, "tests:Sink", CustomOptions("tests:Sink"), batch=AT_ONCE), **settings
    )


def change(namespace: str = "video", id: str = "1", data: bytes = b"{}", op: Any = "update") -> Any:
    record = EntryRecord("oplog", "p", op, id=id, data=Raw(data))
    return NewEntry(5, Mode.SYNC, namespace, encode_record(record))


def control(op: Any, copy: int | None = None) -> NewEntry:
    mode = Mode.COPY if op == "reset" else Mode.COMPLETE
    return NewEntry(
        5, mode, control_key("oplog"), encode_record(EntryRecord("oplog", "p", op, copy=copy))
    )


class RecordingSink:
    """``calls``: of this sink and of all that share ``events``; the latter with the name.

    ``before``: called with the offsets of a write before it counts; raises to let it fail.
    """

    removes_at_end_of_copy = True

    def __init__(
        self,
        name: str = "c0",
        before: Callable[[list[int]], object] = lambda offsets: None,
        events: list[Any] | None = None,
    ) -> None:
        self.name = name
        self.before = before
        self.events = [] if events is None else events
        self.calls: list[Any] = []
        self.messages: list[Message] = []

    def open(self) -> None:
        self._add("open")

    def write(self, messages: Sequence[Message]) -> None:
        offsets = [message.offset for message in messages]
        self.before(offsets)
        self.messages += messages
        self._add(offsets)

    def begin_copy(self, generation: int, source: str) -> None:
        self._add(("begin", generation, source))

    def end_copy(self, generation: int, source: str) -> None:
        self._add(("end", generation, source))

    def close(self) -> None:
        self._add("close")

    @property
    def writes(self) -> list[list[int]]:
        return [call for call in self.calls if isinstance(call, list)]

    @property
    def offsets(self) -> list[int]:
        return [offset for write in self.writes for offset in write]

    def _add(self, call: object) -> None:
        self.calls.append(call)
        self.events.append((self.name, call))


class Gate:
    """Holds a sink at an offset. ``reached``: it is there. ``open``: let it go on."""

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, offsets: list[int]) -> None:
        if self._offset in offsets:
            self.reached.set()
            assert self.open.wait(DEADLINE)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, DEADLINE)


def refuse(offset: int, error: Exception) -> Callable[[list[int]], None]:
    """Return a function that lets every write fail that has an offset."""

    def before(offsets: list[int]) -> None:
        if offset in offsets:
            raise error

    return before


class ScriptedSources(Sources):
    """Appends entries when it runs, then waits or fails. ``copies``: sources to copy again."""

    def __init__(
        self, log: CommitLog, events: list[Any], brings: Iterable[NewEntry], error: Exception | None
    ) -> None:
        self.log = log
        self.copies: list[str] = []
        self.running = asyncio.Event()
        self._events = events
        self._brings = list(brings)
        self._error = error

    def restart_copy(self, names: Iterable[str]) -> None:
        self.copies += names

    def without_copy(self, since: int) -> list[str]:
        return ["oplog"]

    async def run(self) -> None:
        self._events.append("source")
        if self._brings:
            self.log.append(self._brings)
        self.running.set()
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()

    def status(self) -> list[SourceStatus]:
        return [SourceStatus("oplog", "system/oplog")]


class Folder:
    """The folder of a pipe. ``events``: of all its sinks and sources, in order."""

    def __init__(self, path: Path, *sinks: SinkSettings, **settings: Any) -> None:
        self.path = path / "pipe"
        self.events: list[Any] = []
        self.settings = PipeSettings(
            self.path, path, (SourceSettings("oplog", ("http://localhost:1",)),), sinks,
            offset_flush=LONG,
        )  # fmt: skip
        self.settings = replace(self.settings, **settings)
        self.code: int | None = None

    def fill(self, *entries: NewEntry) -> None:
        log = CommitLog.open(self.path, clock=lambda: CREATED)
        log.append(entries)
        log.close()

    def acknowledge(self, **offsets: int) -> None:
        for name, offset in offsets.items():
            log = OffsetLog.open(self.path, name)
            log.write({"video": offset, WHOLE_SINCE: -1})
            log.close()

    def flushed(self) -> dict[str, int | None]:
        return {name: OffsetLog.view(self.path, name).offset for name in OffsetLog.names(self.path)}

    def start(
        self,
        *sinks: RecordingSink,
        brings: Iterable[NewEntry] = (),
        error: Exception | None = None,
        **options: Any,
    ) -> "Running":
        return Running(self, sinks, brings, error, options)

    async def run(self, *sinks: RecordingSink, **options: Any) -> int:
        """Run until the sources are read or the pipe ends; then stop. Return the exit code."""
        async with self.start(*sinks, **options) as running:
            await running.sources_or_end()
        return running.code


class Running:
    """A pipe that runs. ``stop`` is set at the end of the block, and the exit code known then."""

    def __init__(
        self, folder: Folder, sinks: Sequence[RecordingSink], brings: Iterable[NewEntry],
        error: Exception | None, options: dict[str, Any],
    ) -> None:  # fmt: skip
        by_name = {each.name: each for each in sinks}
        for each in sinks:
            each.events = folder.events
        self.stop = asyncio.Event()
        self.sources: ScriptedSources | None = None
        self._opened = asyncio.Event()

        def open_sources(
            _: object, log: CommitLog, path: Path, room: CommitLogRoom
        ) -> ScriptedSources:
            assert path == folder.path
            self.sources = ScriptedSources(log, folder.events, brings, error)
            self._opened.set()
            return self.sources

        self.pipe = Pipe(
            folder.settings,
            build=lambda settings, root: by_name[settings.name],
            sources=open_sources,
            **options,
        )
        self.code = -1

    @property
    def log_status(self) -> LogStatus:
        found = self.pipe.status().log
        assert found is not None
        return found

    async def __aenter__(self) -> "Running":
        self.task = asyncio.create_task(self.pipe.run(self.stop))
        return self

    async def sources_or_end(self) -> None:
        """Wait until the sources are read, or until the pipe ends."""
        opened = asyncio.create_task(self._running())
        await asyncio.wait({opened, self.task}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()

    async def _running(self) -> None:
        await self._opened.wait()
        assert self.sources is not None
        await self.sources.running.wait()

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        async with asyncio.timeout(DEADLINE):
            self.code = await self.task
