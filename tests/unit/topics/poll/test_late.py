"""Polls of messages under pointers that were reported, or rolled back, after their decision."""

from oplogd.model.message_id import stamp
from oplogd.model.pointer import Decision, Snapshot
from tests.unit.topics.pointer_world import COMMITTED, UNCOMMITTED, World, payloads

WITH_SNAPSHOT = Snapshot(100)


async def _late(world: World) -> None:
    await world.direct(7, "a")
    await world.store(7, "b", "c")
    await world.publish(7)
    await world.decide(7, Decision.TIMED_OUT)
    await world.plain("plain")
    await world.decide(7, Decision.COMMITTED)


async def test_each_reader_gets_the_messages_of_a_late_commit_once() -> None:
    world = await World.new()
    await _late(world)
    assert await world.poll(COMMITTED) == "plain a b c"
    assert await world.poll(UNCOMMITTED) == await world.poll(WITH_SNAPSHOT) == "a b c plain"


async def test_a_committed_reader_resumes_among_late_messages() -> None:
    world = await World.new()
    await _late(world)
    whole = (await world.answer(COMMITTED)).messages
    for k, message in enumerate(whole):
        rest = await world.answer(COMMITTED, message.id)
        assert [each.id for each in rest.messages] == [each.id for each in whole[k + 1 :]]
        assert not rest.gap


async def test_a_poll_from_before_messages_that_were_taken_away_announces_a_gap() -> None:
    world = await World.new()
    marks = await world.direct(7, "a", "b", "c")
    await world.decide(7, Decision.COMMITTED)
    ids = [each.id for each in (await world.answer(COMMITTED)).messages]
    taken = [stamp(marks[1].ms, marks[1].sequence)]
    await world.pointers.rollback(world.log, 7, taken, force=True)
    for reader in (COMMITTED, UNCOMMITTED, WITH_SNAPSHOT):
        answers = [await world.answer(reader, id_) for id_ in ids]
        assert [(each.gap, payloads(each)) for each in answers] == [
            (True, ["c"]), (False, ["c"]), (False, [])
        ]  # fmt: skip
        assert (await world.answer(reader, world.now, inclusive=True)).gap
        assert not (await world.answer(reader)).gap
