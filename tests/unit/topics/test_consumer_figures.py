"""The figures of named consumers while measuring takes long, and while logs go."""

import asyncio

import pytest

from oplogd.clock import Clock
from oplogd.errors import OplogError, PositionError, TopicNotFoundError
from oplogd.model.consumer import ConsumerSettings, NamedConsumer, ShardPosition
from oplogd.model.names import OPLOG
from oplogd.store.consumers import ConsumerRow
from oplogd.topics.consumers import figures
from oplogd.topics.consumers.figures import ConsumerFigures
from oplogd.topics.consumers.lags import Retention, ShardLag

ROW = ConsumerRow(NamedConsumer("a", ConsumerSettings(OPLOG), 0), [ShardPosition("0")])


class Consumers:
    """One named consumer. Its store answers once it ``may_go_on``."""

    def __init__(self, error: OplogError | None = None) -> None:
        self.lags = self
        self.error = error
        self.may_go_on = asyncio.Event()
        self.rows = [ROW]

    async def select(self, after: str, limit: int) -> list[ConsumerRow]:
        await self.may_go_on.wait()
        return [] if after else self.rows

    async def retention(self) -> Retention:
        return Retention(False, 0)

    async def positions_of(self, settings: ConsumerSettings) -> "Consumers":
        return self

    async def now(self) -> str:
        return "f" * 24

    async def of(self, *_: object) -> ShardLag:
        if self.error is not None:
            raise self.error
        return ShardLag(3, 1.0, False)


async def test_nobody_waits_for_figures_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "WAIT_SECONDS", 0)
    consumers = Consumers()
    measured = ConsumerFigures(consumers, Clock())  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        for _ in range(2):
            assert await measured.figures() is None
    consumers.may_go_on.set()
    async with asyncio.timeout(10):
        while (found := await measured.figures()) is None:
            await asyncio.sleep(0)
    assert (found.consumers, found.largest.entries) == (1, 3)


@pytest.mark.parametrize("error", [PositionError("damaged"), TopicNotFoundError("no topic")])
async def test_a_damaged_position_and_a_topic_that_goes_leave_the_other_figures(
    error: OplogError,
) -> None:
    consumers = Consumers(error)
    consumers.may_go_on.set()
    measured = ConsumerFigures(consumers, Clock())  # type: ignore[arg-type]
    found = await measured.figures()
    assert found is not None
    assert (found.consumers, found.largest.entries) == (1, 0)


async def test_few_shards_have_figures_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MAX_SHARDS", 5)
    consumers = Consumers()
    consumers.may_go_on.set()
    consumers.rows = [
        ConsumerRow(
            NamedConsumer(name, ConsumerSettings(OPLOG, shards=shards), 0),
            [ShardPosition("0")] * shards,
        )
        for name, shards in (("a", 1), ("b", 3), ("c", 4))
    ]
    found = await ConsumerFigures(consumers, Clock()).figures()  # type: ignore[arg-type]
    assert found is not None
    assert {key.name for key in found.shown} == {"a", "c"}
    assert (len(found.shown), found.consumers, found.left_out) == (5, 3, 1)
