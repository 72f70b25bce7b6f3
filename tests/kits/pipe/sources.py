"""Sources that run in a test, and what they have written."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from oplog_pipe.commitlog.codec import Mode
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.follow.sources import Sources
from oplog_pipe.model.record import decode_record
from oplog_pipe.model.settings import SourceSettings
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.streams import Streams
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import Reply, answer

FAST = (0.01, 0.05)
NO_STATUS = answer("404 Not Found", "{}")


class Written(NamedTuple):
    """An entry of the log. ``copy``: offset of the ``reset`` of its copy."""

    mode: Mode
    key: str
    op: str
    id: str
    copy: int | None
    position: str
    data: bytes
    timestamp: int


def source(*agents: str, name: str = "oplog", **settings: Any) -> SourceSettings:
    return SourceSettings(name, agents, **settings)


def written(log: CommitLog) -> list[Written]:
    entries = []
    for entry in log.read(0):
        record = decode_record(entry.data)
        entries.append(
            Written(
                entry.mode,
                entry.key,
                record.op,
                record.id,
                record.copy,
                record.position,
                bytes(record.data),
                entry.timestamp,
            )
        )
    return entries


def ops(log: CommitLog) -> list[tuple[str, str]]:
    return [(each.op, each.id) for each in written(log)]


class Pipe(NamedTuple):
    """A log and the sources that run on it."""

    log: CommitLog
    sources: Sources
    task: "asyncio.Task[None]"

    async def until_end(self, end: int) -> list[tuple[str, str]]:
        """Wait until the log has this many entries. Return them: operation and id."""
        waiting = asyncio.create_task(asyncio.to_thread(self.log.wait, end - 1, DEADLINE))
        await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            self.log.wake()
            await waiting
            self.task.result()
        assert self.log.end == end
        return ops(self.log)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.005)


@asynccontextmanager
async def running(
    folder: Path, *settings: SourceSettings, restart_copy: list[str] | None = None, **options: Any
) -> AsyncIterator[Pipe]:
    """Run new sources on the log of a folder, and stop them as the pipe does."""
    log = CommitLog.open(folder)
    try:
        sources = Sources(settings, log, folder, **{"backoff": FAST, **options})
        sources.restart_copy(restart_copy or [])
        task = asyncio.create_task(sources.run())
        try:
            yield Pipe(log, sources, task)
        finally:
            task.cancel()
            await asyncio.wait({task})
    finally:
        log.close()


class Script(Streams):
    """Sends each request for a stream the next of ``streams``. ``status``: answer to /status."""

    def __init__(self, *streams: Sequence[bytes] | bytes, status: bytes = NO_STATUS) -> None:
        super().__init__(*streams)
        self._status = status

    @property
    def streamed(self) -> list[Request]:
        """Return the requests for a stream."""
        return [each for each in self.requests if each.path != "/status"]

    async def respond(self, request: Request) -> Reply:
        return self._status if request.path == "/status" else await super().respond(request)
