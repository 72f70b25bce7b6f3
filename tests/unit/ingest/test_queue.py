"""The bounded queue: order, counts that match the contents, and answers to waiting requests."""

import asyncio
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import QueueFullError, StoreUnavailableError
from oplogd.ingest.queue import IngestItem, IngestQueue
from oplogd.model.operation import Operation
from oplogd.watch.bounded import QUEUE_OF_A_WORKER, THE_QUEUE
from tests.kits.models.operations import numbered, operation
from tests.kits.models.properties import examples
from tests.kits.processes.logged import DEADLINE
from tests.unit.ingest.writing import submit

HUGE = 10**9


def size_of(operations: list[Operation]) -> int:
    return sum(len(op.data) + len(op.key) for op in operations)


def flat(items: list[IngestItem]) -> list[Operation]:
    return [op for item in items for op in item.operations]


async def test_operations_come_out_in_the_order_they_went_in() -> None:
    queue = IngestQueue(HUGE, HUGE)
    queue.put(numbered(2))
    submit(queue, numbered(1, first=3))
    assert flat(await queue.take(HUGE, HUGE)) == numbered(3)


async def test_what_comes_before_a_take_is_taken_and_what_was_refused_is_not() -> None:
    queue = IngestQueue(HUGE, HUGE)
    waits = 0

    async def before_take() -> None:
        nonlocal waits
        waits += 1
        if waits == 1:
            queue.refuse_waiting(StoreUnavailableError("gone"))
            asyncio.get_running_loop().call_soon(queue.put, numbered(1, first=2))
        else:
            queue.put(numbered(1, first=3))

    queue.before_take = before_take
    done = submit(queue, numbered(1))
    assert flat(await queue.take(HUGE, HUGE)) == numbered(2, first=2)
    assert waits == 2
    with pytest.raises(StoreUnavailableError, match="gone"):
        await done


@pytest.mark.parametrize(
    ("operations", "size", "taken"),
    [(3, HUGE, 2), (4, HUGE, 4), (0, HUGE, 2), (HUGE, 0, 2), (HUGE, 1, 2)],
)
async def test_a_take_holds_whole_items_that_fit_and_at_least_one(
    operations: int, size: int, taken: int
) -> None:
    queue = IngestQueue(HUGE, HUGE)
    for first in (1, 3, 5):
        queue.put(numbered(2, first))
    assert len(flat(await queue.take(operations, size))) == taken


async def test_operations_count_until_the_writer_has_written_them() -> None:
    queue = IngestQueue(3, HUGE)
    queue.put(numbered(3))
    items = await queue.take(HUGE, HUGE)
    with pytest.raises(
        QueueFullError, match=r"the queue is full \(3 operations\); try again later"
    ):
        queue.put(numbered(1))
    queue.finish(items)
    queue.put(numbered(3))


async def test_the_queue_is_bounded_in_bytes_too_and_a_refusal_changes_nothing() -> None:
    one = operation(parents=["p" * 100])
    queue = IngestQueue(HUGE, 2 * size_of([one]))
    queue.put([one])
    queue.put([one])
    with pytest.raises(QueueFullError):
        queue.put([one])
    assert (queue.count, queue.bytes) == (2, 2 * size_of([one]))


@pytest.mark.parametrize("name", [THE_QUEUE, QUEUE_OF_A_WORKER])
async def test_operations_that_can_never_fit_are_refused_with_the_flags(name: str) -> None:
    queue = IngestQueue(2, size_of(numbered(2)), name=name)
    queue.put(numbered(2))
    queue.require_fitting(2, size_of(numbered(2)))
    for large in (numbered(3), [operation(id_="x" * 100), operation()]):
        message = rf"the {len(large)} operations are more than {name} holds \(2 operations, "
        with pytest.raises(TooLargeError, match=f"^{message}.*; see --max-queued-events, "):
            queue.require_fitting(len(large), size_of(large))


async def test_a_waiting_request_is_answered_when_its_operations_are_durable() -> None:
    queue = IngestQueue(HUGE, HUGE)
    done = submit(queue, numbered(1))
    items = await queue.take(HUGE, HUGE)
    assert not done.done()
    queue.finish(items)
    await done


async def test_a_waiting_take_returns_the_next_operations() -> None:
    queue = IngestQueue(HUGE, HUGE)
    taking = asyncio.create_task(queue.take(HUGE, HUGE))
    await asyncio.sleep(0)
    queue.put(numbered(1))
    async with asyncio.timeout(DEADLINE):
        assert flat(await taking) == numbered(1)


async def test_waiting_requests_are_refused_and_leave_while_other_operations_stay() -> None:
    queue = IngestQueue(HUGE, HUGE)
    waiting = submit(queue, numbered(2))
    queue.put(numbered(1, first=3))
    error = StoreUnavailableError("away")
    assert queue.refuse_waiting(error) == 2
    assert waiting.exception() is error
    assert (queue.count, queue.bytes) == (1, size_of(numbered(1, first=3)))
    assert flat(await queue.take(HUGE, HUGE)) == numbered(1, first=3)
    assert queue.refuse_waiting(error) == 0


async def test_a_cancelled_request_does_no_harm() -> None:
    queue = IngestQueue(HUGE, HUGE)
    gone, refused = submit(queue, numbered(1)), submit(queue, numbered(1))
    assert gone is not None
    assert refused is not None
    gone.cancel()
    refused.cancel()
    queue.finish(await queue.take(1, HUGE))
    assert queue.refuse_waiting(StoreUnavailableError("away")) == 1
    assert queue.count == 0


async def test_emptied_waits_for_operations_that_are_being_written() -> None:
    queue = IngestQueue(HUGE, HUGE)
    async with asyncio.timeout(DEADLINE):
        await queue.emptied()
        queue.put(numbered(1))
        items = await queue.take(HUGE, HUGE)
        emptied = asyncio.create_task(queue.emptied())
        await asyncio.sleep(0)
        assert not emptied.done()
        queue.finish(items)
        await emptied


sizes = st.integers(0, 4)
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "submit", "take", "finish", "refuse"]), sizes, st.integers(1, 600)
    ),
    max_size=40,
)


@examples(2)
@given(st.integers(1, 12), st.integers(100, 1500), steps)
async def test_the_counts_match_the_contents(
    most: int, most_bytes: int, plan: list[tuple[str, int, int]]
) -> None:
    queue = IngestQueue(most, most_bytes)
    waiting: deque[tuple[list[Operation], asyncio.Future[None] | None]] = deque()
    held: list[IngestItem] = []
    for step, count, size in plan:
        inside = [op for operations, _ in waiting for op in operations] + flat(held)
        if step in ("put", "submit"):
            made = numbered(count)
            fits = len(inside) + count <= most and size_of(inside + made) <= most_bytes
            try:
                if step == "submit":
                    waiting.append((made, submit(queue, made)))
                else:
                    queue.put(made)
                    waiting.append((made, None))
                assert fits
            except QueueFullError:
                assert not fits
        elif step == "take" and waiting:
            taken = await queue.take(count, size)
            expected = [waiting.popleft()]
            while waiting:
                more = [op for operations, _ in [*expected, waiting[0]] for op in operations]
                if len(more) > count or size_of(more) > size:
                    break
                expected.append(waiting.popleft())
            assert [list(item.operations) for item in taken] == [
                operations for operations, _ in expected
            ]
            held += taken
        elif step == "finish":
            queue.finish(held)
            held = []
        elif step == "refuse":
            refused = [(operations, done) for operations, done in waiting if done is not None]
            assert queue.refuse_waiting(StoreUnavailableError("away")) == sum(
                len(ops) for ops, _ in refused
            )
            assert all(done is not None and done.exception() is not None for _, done in refused)
            waiting = deque((operations, done) for operations, done in waiting if done is None)
        inside = [op for operations, _ in waiting for op in operations] + flat(held)
        assert (queue.count, queue.bytes) == (len(inside), size_of(inside))
        assert 0 <= queue.count <= most
        assert 0 <= queue.bytes <= most_bytes
