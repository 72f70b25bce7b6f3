"""Polls of the oplog by a reader who may see a part of it."""

from collections.abc import Callable
from typing import cast

import pytest

from oplogd.errors import LogReplacedError, StoreUnavailableError
from oplogd.model.event_id import Mark, format_id
from oplogd.model.operation import Operation
from oplogd.store import Entry, LogBounds, Store
from oplogd.stream.ring.filters import Filter
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.oplog import OplogPoller
from oplogd.topics.poll import PollAnswer
from tests.kits.models.operations import entry, numbered, operation

ADA = Filter(parents=frozenset({"user/ada"}))
OF_ADA = operation(parents=["user/ada"])


class Log:
    """A log in memory. ``looked_at``: number of entries handed out."""

    def __init__(self, made: list[Operation], ms: Callable[[int], int] = lambda offset: offset):
        self.entries = [entry(offset, ms(offset), each) for offset, each in enumerate(made, 1)]
        self.looked_at = 0

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        if at_ms is not None and self.entries[after - 1].ms != at_ms:
            raise LogReplacedError("the log's entry is another one")
        page = self.entries[after : after + limit]
        self.looked_at += len(page)
        return page

    async def locate(self, offset: int = 0) -> LogBounds:
        last = self.entries[-1]
        at = self.entries[offset - 1].ms if 0 < offset <= last.offset else None
        return LogBounds(Mark(last.offset, last.ms), Mark(1, self.entries[0].ms), at, 0, 1, 0, 0)


def poller_of(log: Log, limit: int = 10) -> OplogPoller:
    return OplogPoller(cast(Store, log), TopicCounters(), limit)


def ids(answer: PollAnswer) -> list[str]:
    return [message.id for message in answer.messages]


def id_at(offset: int, ms: int | None = None) -> str:
    return format_id(Mark(offset, offset if ms is None else ms))


def after(id_: str) -> PollRequest:
    return PollRequest(bytes.fromhex(id_), inclusive=False)


async def test_a_poll_reads_on_behind_a_long_run_of_others() -> None:
    log = Log([*numbered(2_500), OF_ADA, *numbered(3)])
    answer = await poller_of(log).poll(PollRequest(), ADA)
    assert (ids(answer), answer.gap, answer.reached) == ([id_at(2_501)], False, id_at(2_504))


async def test_a_poll_ends_at_its_limit_and_tells_the_position_of_its_last_operation() -> None:
    log = Log([operation(), OF_ADA, operation(), OF_ADA, OF_ADA])
    answer = await poller_of(log, limit=2).poll(PollRequest(), ADA)
    assert (ids(answer), answer.reached) == ([id_at(2), id_at(4)], id_at(4))
    answer = await poller_of(log).poll(after(id_at(4)), ADA)
    assert (ids(answer), answer.reached) == ([id_at(5)], id_at(5))


async def test_a_poll_ends_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oplogd.topics.oplog.MAX_ANSWER_BYTES", 200)
    log = Log([operation(), OF_ADA, operation(), OF_ADA, operation(), OF_ADA])
    answer = await poller_of(log).poll(PollRequest(), ADA)
    assert (ids(answer), answer.reached) == ([id_at(2), id_at(4)], id_at(5))


async def test_a_repeated_poll_looks_at_what_is_not_its_own_once() -> None:
    log = Log(numbered(3_000))
    poller = poller_of(log)
    for _ in range(3):
        answer = await poller.poll(after(id_at(10)), ADA)
        assert (ids(answer), answer.reached) == ([], id_at(3_000))
    assert log.looked_at == 2_990
    log.entries.append(entry(3_001, 3_001, OF_ADA))
    for _ in range(3):  # an answer may be lost
        assert ids(await poller.poll(after(id_at(10)), ADA)) == [id_at(3_001)]
    assert log.looked_at == 2_993
    assert ids(await poller.poll(after(id_at(10)), Filter())) == [
        id_at(offset) for offset in range(11, 21)
    ]


async def test_what_is_known_of_one_log_is_not_believed_of_another() -> None:
    log = Log(numbered(20))
    poller = poller_of(log)
    await poller.poll(after(id_at(10)), ADA)
    other = Log([*numbered(10), *[OF_ADA] * 5, *numbered(5)], lambda at: at + (at > 10) * 50)
    log.entries = other.entries
    with pytest.raises(StoreUnavailableError, match="poll again"):
        await poller.poll(after(id_at(10)), ADA)
    assert ids(await poller.poll(after(id_at(10)), ADA)) == [
        id_at(offset, offset + 50) for offset in range(11, 16)
    ]


async def test_few_positions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oplogd.topics.oplog._MOST_PASSED", 2)
    log = Log(numbered(20))
    poller = poller_of(log)
    for offset in (1, 2, 3, 2, 3):
        await poller.poll(after(id_at(offset)), ADA)
    assert log.looked_at == 19 + 18 + 17
    await poller.poll(after(id_at(1)), ADA)
    assert log.looked_at == 19 + 18 + 17 + 19


async def test_without_a_filter_no_position_is_told() -> None:
    answer = await poller_of(Log(numbered(3))).poll(PollRequest())
    assert (len(answer.messages), answer.reached) == (3, None)
