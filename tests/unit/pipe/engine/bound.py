"""Folders with a bounded log, and sources that wait for room."""

import asyncio
from pathlib import Path
from typing import Any

from oplog_pipe.commitlog import CommitLog, NewEntry
from oplog_pipe.commitlog.codec import size_of
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.errors import SinkError
from oplog_pipe.model.settings import SourceSettings
from tests.unit.pipe.engine.engine import (
    DEADLINE,
    Folder,
    RecordingSink,
    Running,
    ScriptedSources,
    change,
)

SOON = RetryClock(pause=lambda stopping, seconds: stopping.wait(min(seconds, 0.01)))
ENTRY = size_of([change(id="000")])
SHOP = SourceSettings("shop/orders", ("http://localhost:1",), "shop/orders")


def changes(count: int, namespace: str = "video") -> list[NewEntry]:
    return [change(namespace, id=f"{number:03}") for number in range(count)]


class BoundSources(ScriptedSources):
    """Appends entries while there is room. Each run brings the next list."""

    lists: list[list[NewEntry]]
    room: CommitLogRoom
    largest = 0

    async def run(self) -> None:
        entries = self.lists.pop(0)
        is_over = False
        try:
            while entries:
                if await asyncio.to_thread(self.room.wait, size_of(entries[:1]), lambda: is_over):
                    self.log.append([entries.pop(0)])
                    self.largest = max(self.largest, self.log.bytes)
            self.running.set()
            await asyncio.Event().wait()
        finally:
            is_over = True
            self.room.wake()


class BoundFolder(Folder):
    def start(self, *sinks: RecordingSink, lists: Any = (), **options: Any) -> Running:
        running = super().start(*sinks, **options)

        def open_sources(
            _: object, log: CommitLog, path: Path, room: CommitLogRoom
        ) -> BoundSources:
            sources = BoundSources(log, self.events, [], None)
            sources.lists, sources.room = [*lists], room
            running.sources = sources
            running._opened.set()
            return sources

        running.pipe._open_sources = open_sources
        return running


async def until(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.001)


async def waits(running: Running, words: str) -> str:
    """Wait until the sources wait for a reason with these words. Return the reason.

    Until a sink has failed, they wait for it to write.
    """
    reason = ""

    def is_told() -> bool:
        nonlocal reason
        reason = running.log_status.waits or ""
        return words in reason

    await until(is_told)
    return reason


class Target(RecordingSink):
    is_away = True

    def __init__(self, name: str) -> None:
        super().__init__(name, self._judge)

    def _judge(self, offsets: list[int]) -> None:
        if self.is_away:
            raise SinkError("away", transient=True)
