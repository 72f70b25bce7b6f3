"""Publishing: commits are shared, failures are told, and nothing that failed is stored later."""

import pytest

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import (
    NotConfirmedError,
    OplogError,
    QueueFullError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from oplogd.topics.counters import Busiest
from tests.unit.topics.publishing import NAME, OTHER_NAME, Bench, data, errors_of, queued


async def test_publishes_to_several_topics_share_a_commit_and_keep_their_order() -> None:
    bench = Bench()
    await bench.topics.create(NAME, None)
    await bench.topics.create(OTHER_NAME, None)
    tasks = [
        bench.publishing("a", "b"),
        bench.publishing("x", name=OTHER_NAME),
        bench.publishing("c"),
    ]
    await queued(bench, 4)
    async with bench.writing():
        assert await errors_of(tasks) == [None] * 3
    assert len(bench.topics.appends) == 1
    assert await bench.stored() == data("a", "b", "c")
    assert await bench.stored(OTHER_NAME) == data("x")
    assert bench.acknowledged == [(1, 3), (2, 1)]
    assert bench.counters.counts.members() == {
        "publishes": 3,
        "messages_published": 4,
        "messages_refused": 0,
        "polls": 0,
        "messages_polled": 0,
    }


async def test_a_batch_that_failed_is_never_stored_and_later_ones_are() -> None:
    bench = Bench()
    await bench.topics.create(NAME, None)
    bench.topics.gate.clear()
    async with bench.writing():
        in_flight = bench.publishing("in flight")
        await bench.topics.arrived.wait()
        waiting = bench.publishing("waiting")
        await queued(bench, 2)
        bench.topics.trouble = StoreUnavailableError("the disk is full")
        bench.topics.gate.set()
        assert await errors_of([in_flight, waiting]) == [NotConfirmedError, StoreUnavailableError]
        assert bench.health.trouble == "the disk is full"
        bench.topics.trouble = None
        await bench.publish("later")
        assert bench.health.trouble is None
    assert await bench.stored() == data("later")
    assert bench.counters.counts.messages_refused == 2
    assert (bench.queue.count, bench.queue.bytes) == (0, 0)


async def test_an_unknown_error_of_the_store_fails_the_request_and_not_the_writer() -> None:
    bench = Bench()
    await bench.topics.create(NAME, None)
    append = bench.topics.append

    async def broken(_: object) -> list[object]:
        raise KeyError("bug")

    bench.topics.append = broken  # type: ignore[method-assign, assignment]
    async with bench.writing():
        with pytest.raises(NotConfirmedError, match="see the log"):
            await bench.publish("lost")
        bench.topics.append = append  # type: ignore[method-assign]
        await bench.publish("kept")
    assert await bench.stored() == data("kept")


async def test_a_known_topic_that_was_deleted_is_not_found() -> None:
    bench = Bench()
    await bench.topics.create(NAME, None)
    async with bench.writing():
        await bench.publish("old")
        await bench.topics.delete(NAME)
        with pytest.raises(TopicNotFoundError):
            await bench.publish("new")


async def test_a_publish_that_waits_while_its_topic_is_created_again_goes_to_the_new_one() -> None:
    bench = Bench()
    await bench.topics.create(NAME, None)
    await bench.topics.create(OTHER_NAME, None)
    bench.topics.gate.clear()
    async with bench.writing():
        tasks = [bench.publishing("new"), bench.publishing("same", name=OTHER_NAME)]
        await bench.topics.arrived.wait()
        await bench.topics.delete(NAME)
        await bench.topics.create(NAME, None)
        bench.topics.gate.set()
        assert await errors_of(tasks) == [None, None]
    assert await bench.stored() == data("new")
    assert await bench.stored(OTHER_NAME) == data("same")


async def test_an_unknown_topic_is_not_found_and_takes_no_room() -> None:
    bench = Bench()
    with pytest.raises(TopicNotFoundError):
        await bench.publish("a")
    assert bench.queue.count == 0


async def test_a_full_queue_refuses_and_a_batch_that_never_fits_is_too_large() -> None:
    bench = Bench(max_messages=2)
    await bench.topics.create(NAME, None)
    first = bench.publishing("a", "b")
    await queued(bench, 2)
    with pytest.raises(QueueFullError, match="2 messages"):
        await bench.publish("c")
    with pytest.raises(TooLargeError):
        await bench.publish("c", "d", "e")
    async with bench.writing():
        await first
    assert await bench.stored() == data("a", "b")


async def test_a_fault_in_the_figures_fails_no_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OplogError("a bug")

    monkeypatch.setattr(Busiest, "add", broken)
    bench = Bench()
    await bench.topics.create(NAME, None)
    async with bench.writing():
        await bench.publish("a")
    assert await bench.stored() == data("a")
