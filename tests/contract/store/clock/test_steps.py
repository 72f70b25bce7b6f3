"""A clock that steps: what it dates, hides, removes and ends in every store."""

import pytest

from oplogd.model.pointer import Decision
from oplogd.model.transaction import Reason, State
from oplogd.store import Store
from oplogd.store.topics import Topic
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import operation
from tests.kits.store.kits import Kit, log_of, states_of
from tests.kits.store.messages import NAME, entries_of, named, payloads_of, publish
from tests.kits.store.pointing import TEPHRA, publish_under, store_under
from tests.kits.store.stepping import DAY, YEARS, poisoned, stand, swept
from tests.kits.store.transacting import begin, group_log

pytestmark = pytest.mark.parametrize("kits", ["sqlite", "mongo-plain"], indirect=True)


async def test_a_clock_that_is_wrong_for_a_moment_dates_nothing(kit: Kit, store: Store) -> None:
    topic = await store.topics.create(NAME, 5)
    kit.clock.jump(YEARS)
    await publish(store.topics, topic, "a")
    await store.append([operation("insert", "b")])
    kit.clock.ms += 1800
    await publish(store.topics, topic, "c")
    kit.clock.jump(-YEARS)
    await publish(store.topics, topic, "d")
    entries = await entries_of(store.topics.log(topic))
    assert [each.ms - START_MS for each in entries] == [0, 1800, 1800]
    assert [each.ms - START_MS for each in await log_of(store)] == [0]
    await store.topics.delete(NAME)
    again = await store.topics.create(NAME, 5)
    assert (await publish(store.topics, again, "e")).first.ms == START_MS + 1800


async def test_a_sweep_while_the_clock_is_ahead_removes_nothing_early(
    kit: Kit, store: Store
) -> None:
    topic = await store.topics.create(NAME, 7 * DAY)
    own = await store.topics.create(named("own"), 30 * DAY)
    await publish(store.topics, topic, "a")
    await publish(store.topics, own, "b", ttl=1000)
    kit.clock.jump(8 * DAY)
    for seconds in (3, 590):  # the second time stamps have followed the clock
        await stand(kit, store, seconds)
        for _ in range(2):
            await store.topics.sweep()
        assert await payloads_of(store.topics, own) == ["b"]
    kit.clock.jump(-8 * DAY)
    assert await payloads_of(store.topics, topic) == ["a"]
    assert await payloads_of(store.topics, own) == ["b"]


async def test_a_longer_time_to_live_while_the_clock_is_ahead_takes_nothing_away(kit: Kit) -> None:
    store = await kit.open()
    topic = await store.topics.create(NAME, 7 * DAY)
    await publish(store.topics, topic, "a")
    store = await _started_again(kit, store, 8 * DAY)
    await stand(kit, store, 90)
    assert await payloads_of(store.topics, topic) == []
    await store.topics.change(NAME, 7 * DAY + 1)
    kit.clock.jump(-8 * DAY)
    assert await payloads_of(store.topics, topic) == ["a"]


async def test_a_deleted_state_stays_while_the_clock_is_ahead(kit: Kit, store: Store) -> None:
    await store.append([operation("delete", "a")])
    kit.clock.jump(8 * DAY)
    await stand(kit, store, 90)
    before = store.clock.removal_ms() - 7 * DAY * 1000
    assert await store.purge(before) == 0
    assert len(await states_of(store)) == 1


async def test_open_transactions_and_pointers_outlast_a_moment_of_a_clock_ahead(
    kit: Kit, store: Store
) -> None:
    topic = await store.topics.create(NAME, None)
    await group_log(store)
    begun = await begin(store, timeout_ms=900_000)
    await publish_under(store, topic, TEPHRA, "a", timeout_ms=900_000)
    await store_under(store, topic, 7, "b", timeout_ms=900_000)
    kit.clock.jump(8 * DAY)
    await stand(kit, store, 3)
    assert await store.transactions.keep() == 0
    assert await store.pointers.keep() == 0
    assert (await store.transactions.find(begun.id)).state is State.OPEN
    kit.clock.jump(-8 * DAY)
    await store.transactions.commit(begun.id, 0)
    marks = await store.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
    assert set(marks) == {topic.log}


async def test_time_outs_run_on_while_the_clock_was_set_back(kit: Kit, store: Store) -> None:
    topic = await store.topics.create(NAME, None)
    await group_log(store)
    begun = await begin(store, timeout_ms=2000)
    await publish_under(store, topic, TEPHRA, "a", timeout_ms=2000)
    kit.clock.jump(-3600)
    kit.clock.ms += 2000
    assert (await store.transactions.keep(), await store.pointers.keep()) == (0, 0)
    kit.clock.ms += 1
    assert (await store.transactions.keep(), await store.pointers.keep()) == (1, 1)
    found = await store.transactions.find(begun.id)
    assert (found.state, found.reason) == (State.ABORTED, Reason.TIMEOUT)


async def test_time_outs_begin_again_at_a_start_with_the_clock_set_back(kit: Kit) -> None:
    store = await kit.open()
    topic = await store.topics.create(NAME, None)
    await group_log(store)
    await begin(store, timeout_ms=2000)
    await publish_under(store, topic, TEPHRA, "a", timeout_ms=2000)
    kit.clock.jump(-3600)
    await kit.close()
    store = await kit.open()
    assert (await store.transactions.keep(), await store.pointers.keep()) == (0, 0)
    kit.clock.ms += 2001
    assert (await store.transactions.keep(), await store.pointers.keep()) == (1, 1)


async def test_a_topic_that_was_stamped_ahead_passes_that_on_to_its_own_name_only(
    kit: Kit, store: Store
) -> None:
    await poisoned(kit, store)
    last = (await store.topics.log(await _found(store)).locate()).head
    await store.topics.delete(NAME)
    other = await store.topics.create(named("other"), 5)
    assert (await publish(store.topics, other, "a")).first.ms == kit.clock.ms
    again = await store.topics.create(NAME, 5)
    first = (await publish(store.topics, again, "b")).first
    assert (first.ms, first.sequence) > (last.ms, last.sequence)
    await store.topics.delete(named("other"))
    third = await store.topics.create(named("third"), 5)
    assert (await publish(store.topics, third, "c")).first.ms == kit.clock.ms


@pytest.mark.parametrize("is_again", [False, True], ids=["in it", "created again"])
async def test_behind_a_head_that_is_ahead_messages_expire_by_the_time_of_writing(
    kit: Kit, store: Store, is_again: bool
) -> None:
    topic = await poisoned(kit, store)
    if is_again:
        await store.topics.delete(NAME)
        topic = await store.topics.create(NAME, 5)
    log = store.topics.log(topic)
    for payload in "abc":
        await publish(store.topics, topic, payload)
        kit.clock.ms += 1000
    await publish(store.topics, topic, "own", ttl=1)
    assert (await payloads_of(store.topics, topic))[-4:] == ["a", "b", "c", "own"]
    kit.clock.ms += 2001
    assert await payloads_of(store.topics, topic) == ["b", "c", None]
    front = (await log.locate()).front
    kit.clock.ms += 1000
    for _ in range(2):
        assert await payloads_of(store.topics, topic) == ["c", None]
        assert (await log.locate()).front.offset == front.offset + 1
        await store.topics.sweep()
    kit.clock.ms += 10_000
    for _ in range(2):
        assert await entries_of(log) == []
        await store.topics.sweep()
    await publish(store.topics, topic, "d")
    assert await payloads_of(store.topics, topic) == ["d"]


async def test_a_new_epoch_gives_topics_the_present_time(kit: Kit, store: Store) -> None:
    topic = await poisoned(kit, store)
    await publish(store.topics, topic, "a", "b")
    before = await entries_of(store.topics.log(topic))
    commit_log = await group_log(store)
    gone = await store.topics.create(named("gone"), None)
    await store.topics.delete(gone.name)
    assert await store.ahead_ms() >= 1000 * (YEARS - DAY)
    await store.new_epoch()
    assert await store.ahead_ms() == 0
    entries = await entries_of(store.topics.log(topic))
    assert [(each.offset, each.data) for each in entries] == [
        (each.offset, each.data) for each in before
    ]
    assert {each.ms for each in entries} == {kit.clock.ms}
    assert [each.written_ms for each in entries] == [0] * len(entries)
    assert (await publish(store.topics, topic, "c")).first.ms == kit.clock.ms
    assert (await publish(store.topics, commit_log, "{}")).first.ms == kit.clock.ms
    again = await store.topics.create(gone.name, None)
    assert (await publish(store.topics, again, "d")).first.ms == kit.clock.ms
    kit.clock.ms += 5001
    assert await payloads_of(store.topics, topic) == []


async def test_a_pause_is_kept_for_those_who_open_the_store_later(kit: Kit, store: Store) -> None:
    kit.clock.jump(8 * DAY)
    await store.keep_clock()
    await stand(kit, store, 30)
    other = await kit.open()
    for each in (store, other):
        assert (await each.locate()).now_ms == START_MS + 30_000
        assert each.clock.removal_ms() == START_MS + 30_000
    await stand(kit, other, 31)
    assert other.clock.removal_ms() == START_MS + 61_000
    assert (await other.locate()).now_ms == kit.clock.ms
    step = other.clock.step()
    assert step is not None
    assert (step.waiting, step.seconds) == (("removals",), 8 * DAY)


async def test_a_start_far_past_the_kept_time_removes_nothing_for_ten_minutes(kit: Kit) -> None:
    store = await kit.open()
    topic = await store.topics.create(NAME, 7 * DAY)
    await publish(store.topics, topic, "a", "b")
    store = await _started_again(kit, store, 8 * DAY)
    assert await payloads_of(store.topics, topic) == ["a", "b"]
    await stand(kit, store, 60)
    assert await payloads_of(store.topics, topic) == []
    await swept(store)
    store = await _started_again(kit, store, -8 * DAY)
    assert await payloads_of(store.topics, topic) == ["a", "b"]
    store = await _started_again(kit, store, 8 * DAY)
    await stand(kit, store, 600)
    assert await swept(store) > 0


async def test_a_start_far_past_the_kept_time_dates_entries_by_it_after_a_minute(kit: Kit) -> None:
    store = await kit.open()
    topic = await store.topics.create(NAME, 7 * DAY)
    store = await _started_again(kit, store, 8 * DAY)
    assert (await publish(store.topics, topic, "a")).first.ms == START_MS + 60_000
    await stand(kit, store, 60)
    assert (await publish(store.topics, topic, "b")).first.ms == kit.clock.ms
    await stand(kit, store, 600)
    await swept(store)
    assert await payloads_of(store.topics, topic) == ["a", "b"]


async def _started_again(kit: Kit, store: Store, seconds: int) -> Store:
    """Return the store after a stop in which the clock was set."""
    await stand(kit, store, 60)
    await kit.close()
    kit.clock.jump(seconds)
    return await kit.open()


async def _found(store: Store) -> Topic:
    topic = await store.topics.find(NAME)
    assert topic is not None
    return topic


async def test_a_second_step_in_a_pause_is_no_time_that_has_passed_if_a_restart_follows(
    kit: Kit, store: Store
) -> None:
    topic = await store.topics.create(NAME, DAY)
    kit.clock.jump(-61)
    await stand(kit, store, 1)
    kit.clock.jump(361)
    await publish(store.topics, topic, "a", ttl=60)
    await stand(kit, store, 1)
    await kit.close()
    store = await kit.open()
    assert await payloads_of(store.topics, topic) == ["a"]
    await stand(kit, store, 58)
    assert await payloads_of(store.topics, topic) == ["a"]
    await stand(kit, store, 2)
    assert await payloads_of(store.topics, topic) == [None]
