"""Many refusals are a failure of the target. A sink that fails may be parked."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from oplog_pipe.commitlog import CommitLog, NewEntry
from oplog_pipe.deliver import delivery
from oplog_pipe.deliver.letters import Breaker
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.errors import ConfigError, SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model.exits import EXIT_OK, EXIT_SINK
from oplog_pipe.model.settings import BatchLimits
from tests.unit.pipe.engine.engine import (
    DEADLINE,
    LONG,
    Folder,
    Gate,
    RecordingSink,
    Running,
    change,
    control,
    sink,
)

LETTERS = {"dead_letter": "dead.jsonl", "dead_letter_limit": 5}
SOON = RetryClock(pause=lambda stopping, seconds: stopping.wait(min(seconds, 0.01)))


def changes(count: int) -> list[NewEntry]:
    return [change(id=str(number)) for number in range(count)]


def dead(path: Path) -> list[int]:
    file = path / "dead.jsonl"
    return (
        [json.loads(line)["offset"] for line in file.read_text().splitlines()]
        if file.exists()
        else []
    )


class Refusing(RecordingSink):
    """Refuses some offsets. ``seen``: set at an offset, whether it is refused or not."""

    def __init__(self, name: str, *bad: int, error: SinkError | None = None, at: int = -1) -> None:
        super().__init__(name, self._judge)
        self.bad = set(bad)
        self.error = error
        self.seen = threading.Event()
        self._at = at

    def _judge(self, offsets: list[int]) -> None:
        refused = self.bad.intersection(offsets)
        if self._at in offsets and (len(offsets) == 1 or not refused):
            self.seen.set()
        if refused:
            raise self.error or SinkError("no", index=offsets.index(min(refused)))


async def phase(running: Running, name: str, wanted: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while {each.name: each.phase for each in running.pipe.status().sinks}.get(name) != wanted:
            await asyncio.sleep(0)


def test_a_row_trips_the_breaker_and_one_success_ends_the_row() -> None:
    breaker = Breaker(3, lambda: 0.0)
    assert [breaker.refuse() for _ in range(2)] == [False, False]
    breaker.succeed(1)
    assert [breaker.refuse() for _ in range(4)] == [False, False, True, False]
    assert not any(Breaker(0, lambda: 0.0).refuse() for _ in range(1000))


def test_as_many_refusals_as_successes_in_a_minute_trip_the_breaker() -> None:
    now = 0.0
    breaker = Breaker(3, lambda: now)
    for number in range(14):
        assert not breaker.refuse(), number
        breaker.succeed(1)
    assert breaker.refuse()
    breaker.succeed(16)
    for number in range(15):
        assert not breaker.refuse(), number
        breaker.succeed(0)
    assert breaker.refuse()
    for number in range(100):
        now += 4.5
        assert not breaker.refuse(), number
        breaker.succeed(1)


@pytest.mark.parametrize("together", [1, 100])
async def test_an_ill_target_makes_no_letters_and_the_sink_stands_before_the_first_message(
    together: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, sink("c0", batch=BatchLimits(together, time=0.0), **LETTERS))
    folder.fill(*changes(100))
    c0 = Refusing("c0", *range(3, 100))
    for _ in range(2):
        assert await folder.run(c0) == EXIT_SINK
    assert dead(tmp_path) == []
    assert folder.flushed() == {"c0": 2}
    assert c0.offsets == [0, 1, 2]
    assert "5 messages in a row were refused" in caplog.text
    c0.bad.clear()
    assert await folder.run(c0) == EXIT_OK
    assert c0.offsets == [*range(100)]


async def test_a_short_row_becomes_letters_once_a_later_message_succeeds(tmp_path: Path) -> None:
    folder = Folder(tmp_path, sink("c0", namespace="^video$", **LETTERS))
    folder.fill(*changes(3), *[change("user")] * 10, *changes(4), change("user"))
    c0 = Refusing("c0", 1, 2, 13, 14)
    assert await folder.run(c0) == EXIT_OK
    assert dead(tmp_path) == [1, 2, 13, 14]
    assert c0.offsets == [0, 15, 16]
    assert folder.flushed() == {"c0": 17}


async def test_letters_at_the_end_of_the_log_are_written_after_a_while_and_before_the_end_of_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "HOLD_SECONDS", 0.01)
    folder = Folder(tmp_path, sink("c0", **LETTERS))
    folder.fill(control("reset"), *changes(1), control("live", 0), *changes(1))
    c0 = Refusing("c0", 1, 3)
    async with folder.start(c0) as running:
        async with asyncio.timeout(DEADLINE):
            while dead(tmp_path) != [1, 3]:
                await asyncio.sleep(0)
    assert c0.calls == ["open", ("begin", c0.calls[1][1], "oplog"), "close"]
    assert running.code == EXIT_OK
    assert folder.flushed() == {"c0": 3}


async def test_letters_that_are_held_at_a_stop_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "HOLD_SECONDS", LONG)
    folder = Folder(tmp_path, sink("c0", **LETTERS))
    folder.fill(*changes(3))
    folder.acknowledge(c0=-1)
    for _ in range(2):  # the sources do not wait for the letters
        c0 = Refusing("c0", 2, at=2)
        async with folder.start(c0) as running:
            await running.sources_or_end()
            assert await asyncio.to_thread(c0.seen.wait, DEADLINE)
        assert (running.code, dead(tmp_path), folder.flushed()) == (EXIT_OK, [], {"c0": 1})
    assert await folder.run(again := RecordingSink("c0")) == EXIT_OK
    assert (again.offsets, dead(tmp_path)) == ([2], [])


@pytest.mark.parametrize("fails_at", ["open", "write"])
async def test_a_parked_sink_keeps_its_place_while_the_sources_and_the_others_go_on(
    fails_at: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Ill(Refusing):
        is_ill = True

        def open(self) -> None:
            super().open()
            if fails_at == "open" and self.is_ill:
                raise TargetError("wrong password")

    caplog.set_level("INFO")
    folder = Folder(tmp_path, sink("c0", on_failure="park"), sink("c1"))
    folder.fill(*changes(4))
    folder.acknowledge(c0=1, c1=1)
    c0, c1 = Ill("c0", 2, error=TargetError("wrong password")), RecordingSink("c1")
    async with folder.start(c0, c1, brings=changes(3), clock=SOON) as running:
        await phase(running, "c0", "parked")
        await running.sources_or_end()
        status = running.pipe.status().sinks[0]
        assert (status.error, status.offset) == ("wrong password", 1)
        async with asyncio.timeout(DEADLINE):
            while c1.offsets != [*range(2, 7)]:
                await asyncio.sleep(0)
    assert running.code == EXIT_OK
    assert folder.flushed() == {"c0": 1, "c1": 6}
    assert caplog.text.count("sink 'c0' is parked at offset 1") == 1
    assert c0.calls.count("close") == 1

    async with folder.start(c0, RecordingSink("c1"), clock=SOON) as running:
        await phase(running, "c0", "parked")
        c0.is_ill = False
        c0.bad.clear()
        await phase(running, "c0", "bulk")
    assert (running.code, c0.offsets) == (EXIT_OK, [*range(2, 7)])
    assert "sink 'c0' is no longer parked" in caplog.text


async def test_a_parked_sink_stands_exactly_before_the_message_that_is_refused(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path, sink("c0", batch=BatchLimits(100, time=0.0), on_failure="park"))
    folder.fill(*changes(9))
    c0 = Refusing("c0", 6)
    async with folder.start(c0, clock=SOON) as running:
        async with asyncio.timeout(DEADLINE):
            while running.pipe.status().sinks == [] or running.pipe.status().sinks[0].offset != 5:
                await asyncio.sleep(0)
        await phase(running, "c0", "parked")
    assert (running.code, c0.offsets, folder.flushed()) == (EXIT_OK, [*range(6)], {"c0": 5})


async def test_a_sink_whose_target_belongs_to_another_folder_is_parked_and_writes_nothing(
    tmp_path: Path,
) -> None:
    class Foreign(RecordingSink):
        asked = 0

        def write(self, messages: Sequence[Message]) -> None:
            self.asked += 1
            raise ConfigError("the target has rows of another folder")

    folder = Folder(tmp_path, sink("c0", on_failure="park"), sink("c1"))
    folder.fill(*changes(2))
    c0 = Foreign("c0")
    async with folder.start(c0, RecordingSink("c1"), clock=SOON) as running:
        await phase(running, "c0", "parked")
        async with asyncio.timeout(DEADLINE):
            while c0.asked < 3:
                await asyncio.sleep(0)
    assert (running.code, c0.calls) == (EXIT_OK, ["open", "close"])


async def test_a_sink_that_fails_while_the_pipe_stops_is_parked_until_the_next_start(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    folder.fill(*changes(2))
    held = Gate(0)

    def fail(offsets: list[int]) -> None:
        held(offsets)
        raise SinkError("no")

    log = CommitLog.open(folder.path)
    settings = sink("c0", on_failure="park")
    stopped = Worker(settings, RecordingSink("c0", fail), Steps([]), log, SinkPlace(-1))
    stopped.start()
    await held.wait()
    stopped.drain()
    held.open.set()
    await asyncio.to_thread(stopped.join, DEADLINE)
    log.close()
    assert (stopped.is_done, stopped.error, stopped.place.offset) == (True, None, -1)
