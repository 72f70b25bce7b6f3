"""Acknowledgements share calls of the store, and each gets its own outcome."""

import asyncio
from collections.abc import Sequence

import pytest

from oplogd.errors import (
    ConsumerNotFoundError,
    NotConfirmedError,
    OplogError,
    StoreUnavailableError,
)
from oplogd.ingest.appends import ANSWER_SECONDS, Appends
from oplogd.model.consumer import Acknowledgement, ShardKey, ShardPosition
from oplogd.store.consumers import Acknowledged
from oplogd.topics.consumers import acknowledger
from oplogd.topics.consumers.acknowledger import Acknowledger
from oplogd.watch.health import Health
from tests.kits.clock.virtual import VirtualClock

ONE, OTHER = ShardKey("a", 0), ShardKey("a", 1)


class Calls:
    """Calls of a store. Each waits for ``answer``."""

    def __init__(self) -> None:
        self.given: list[list[Acknowledgement]] = []
        self._begun = asyncio.Event()
        self._answers: asyncio.Queue[Exception | OplogError | None] = asyncio.Queue()

    async def __call__(self, given: Sequence[Acknowledgement]) -> list[Acknowledged]:
        self.given.append(list(given))
        self._begun.set()
        error = await self._answers.get()
        if error is not None:
            raise error
        return [Acknowledged(ShardPosition(each.id)) for each in given]

    async def begun(self, count: int) -> list[str]:
        """Wait for a call of this number. Return its ids."""
        while len(self.given) < count:
            self._begun.clear()
            await self._begun.wait()
        return [each.id for each in self.given[count - 1]]

    def answer(self, error: Exception | None = None) -> None:
        self._answers.put_nowait(error)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def at(calls: Calls) -> Acknowledger:
    return Acknowledger(calls)


Waiting = asyncio.Task[Acknowledged]


def send(at: Acknowledger, *ids: str, key: ShardKey | None = None) -> list[Waiting]:
    """Acknowledge ids, each of a shard of its own unless ``key`` names one."""
    return [
        asyncio.create_task(at.acknowledge(Acknowledgement(key or ShardKey(id_, 0), 1, id_)))
        for id_ in ids
    ]


async def positions(waiting: Sequence[Waiting]) -> list[str]:
    outcomes = await asyncio.gather(*waiting)
    return [each.shard.position for each in outcomes if each.shard is not None]


async def turn() -> None:
    """Let everything go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_arrives_while_a_call_runs_shares_the_next_one(
    at: Acknowledger, calls: Calls
) -> None:
    first = send(at, "1", "2")
    assert await calls.begun(1) == ["1", "2"]
    second = send(at, "3")
    await turn()
    second += send(at, "4", "5")
    await turn()
    assert len(calls.given) == 1
    calls.answer()
    assert await positions(first) == ["1", "2"]
    assert await calls.begun(2) == ["3", "4", "5"]
    assert not any(each.done() for each in second)
    calls.answer()
    assert await positions(second) == ["3", "4", "5"]
    third = send(at, "6")
    assert await calls.begun(3) == ["6"]
    calls.answer()
    assert await positions(third) == ["6"]
    assert len(calls.given) == 3


async def test_of_a_shard_a_call_has_one_in_the_order_of_their_arrival(
    at: Acknowledger, calls: Calls
) -> None:
    waiting = send(at, "3", "1", key=ONE) + send(at, "9", key=OTHER) + send(at, "2", key=ONE)
    assert await calls.begun(1) == ["3", "9"]
    calls.answer()
    assert await calls.begun(2) == ["1"]
    waiting += send(at, "8", key=OTHER)
    await turn()
    calls.answer()
    assert await calls.begun(3) == ["2", "8"]
    calls.answer()
    assert await positions(waiting) == ["3", "1", "9", "2", "8"]


async def test_a_call_takes_a_bounded_number(
    at: Acknowledger, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledger, "_MOST", 2)
    waiting = send(at, *"12345")
    for number, ids in enumerate((["1", "2"], ["3", "4"], ["5"]), 1):
        assert await calls.begun(number) == ids
        calls.answer()
    assert await positions(waiting) == [*"12345"]


async def test_a_failure_reaches_the_waiters_of_its_call_only(
    at: Acknowledger, calls: Calls
) -> None:
    first = send(at, "1", "2")
    await calls.begun(1)
    second = send(at, "3")
    await turn()
    calls.answer(StoreUnavailableError("away"))
    for each in first:
        with pytest.raises(StoreUnavailableError, match="away"):
            await each
    await calls.begun(2)
    calls.answer()
    assert await positions(second) == ["3"]


async def test_a_refused_one_does_not_refuse_the_others() -> None:
    gone = ConsumerNotFoundError("gone")

    async def store(given: Sequence[Acknowledgement]) -> list[Acknowledged]:
        return [
            Acknowledged(None, gone) if each.id == "2" else Acknowledged(ShardPosition(each.id))
            for each in given
        ]

    outcomes = await asyncio.gather(*send(Acknowledger(store), "1", "2", "3"))
    assert [each.error for each in outcomes] == [None, gone, None]
    assert [each.shard and each.shard.position for each in outcomes] == ["1", None, "3"]


async def test_an_unknown_error_is_logged_and_told_as_a_failure_of_the_store(
    at: Acknowledger, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    (waiting,) = send(at, "1")
    calls.answer(ZeroDivisionError("a bug"))
    with pytest.raises(StoreUnavailableError, match="see the log"):
        await waiting
    assert "a bug" in caplog.text
    (waiting,) = send(at, "2")
    calls.answer()
    assert await positions([waiting]) == ["2"]


async def test_a_waiter_that_has_gone_is_left_out_and_disturbs_no_other(
    at: Acknowledger, calls: Calls
) -> None:
    first = send(at, "1", "2")
    await calls.begun(1)
    second = send(at, "3", "4")
    await turn()
    for each in (first[0], second[0]):
        each.cancel()
    await turn()
    calls.answer()
    assert await positions(first[1:]) == ["2"]
    assert await calls.begun(2) == ["4"]
    calls.answer()
    assert await positions(second[1:]) == ["4"]
    third = send(at, "5", "6")
    for each in third:
        each.cancel()
    await turn()
    assert len(calls.given) == 2
    (last,) = send(at, "7")
    assert await calls.begun(3) == ["7"]
    calls.answer()
    assert await positions([last]) == ["7"]


async def test_one_that_is_not_confirmed_in_time_fails_and_the_next_ones_do_not_wait(
    calls: Calls,
) -> None:
    clock = VirtualClock()
    appends = Appends(Health(), clock.clock)
    at = Acknowledger(lambda given: appends.confirmed(calls(given)))
    first = send(at, "1")
    await calls.begun(1)
    second = send(at, "2")
    await turn()
    for _ in range(int(ANSWER_SECONDS)):
        clock.move(1.0)
        appends.look()
    with pytest.raises(NotConfirmedError, match="has not confirmed"):
        await first[0]
    with pytest.raises(StoreUnavailableError, match="has not confirmed"):
        await second[0]
    assert len(calls.given) == 1, "nothing is begun behind a hanging store"
    calls.answer()
    await turn()
    third = send(at, "3")
    assert await calls.begun(2) == ["3"]
    calls.answer()
    assert await positions(third) == ["3"]


async def test_all_that_wait_fail_when_the_agent_stops(at: Acknowledger, calls: Calls) -> None:
    first = send(at, "1")
    await calls.begun(1)
    second = send(at, "2")
    await turn()
    (running,) = (each for each in asyncio.all_tasks() if each.get_name() == "acknowledgements")
    running.cancel()
    for each in first + second:
        with pytest.raises(NotConfirmedError, match="the agent stops"):
            await asyncio.wait_for(each, 5)
