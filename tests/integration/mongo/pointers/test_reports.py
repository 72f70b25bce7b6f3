"""Reports and rollbacks of one pointer on two agents, of which one is killed or held at a step."""

import asyncio
import functools
from collections.abc import Awaitable, Callable

import pytest
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from oplogd.errors import TransactionConflictError
from oplogd.model.pointer import Decision
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.mongo.link.layout import LEASE, Document
from oplogd.store.mongo.pointers.reports import Reports
from oplogd.store.topics import Topic
from tests.integration.mongo.committing import KilledError, Steps, opened, stepping, topics_of
from tests.integration.mongo.pointing import (
    TEPHRA,
    TIMEOUT_MS,
    counts,
    kinds,
    publish,
    publish_stored,
    seen,
    stamp_of,
    store_messages,
)
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore

_SETTLED_MS = 3_001
COMMITTED, ABORTED, TIMED_OUT = Decision

ROLLBACK_STEPS = ("rollback-noted", "claimed", "voided", "dropped", "void-entry")


@pytest.fixture
async def keeper(plain_url: str, make_store: MakeStore) -> MongoStore:
    return await opened(make_store, plain_url)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def other(
    keeper: MongoStore, plain_url: str, make_store: MakeStore, steps: Steps
) -> MongoStore:
    """An agent that the test kills or holds at a step. It does not keep."""
    return await stepping(make_store, plain_url, steps)


async def kill(steps: Steps, step: str, times: int, call: Callable[[], Awaitable[object]]) -> None:
    steps.kill_at = step, times
    with pytest.raises(KilledError):
        await call()
    steps.kill_at = None


async def late(store: MongoStore, topic: Topic) -> list[str]:
    """Return the payloads of the LATE entries."""
    found = await store.topics.log(topic).read(0, 1000)
    data = [each.data for each in found if each.event == "late"]
    return [each.removeprefix('{"payload":"').removesuffix('"}') for each in data]


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("step", ROLLBACK_STEPS)
async def test_a_report_between_two_steps_of_a_rollback_comes_first_or_after_all_of_it(
    keeper: MongoStore, other: MongoStore, steps: Steps, step: str, with_keys: bool
) -> None:
    (topic,) = await topics_of(keeper, "a")
    marks = await publish(keeper, topic, "a", "b")
    stamps = [stamp_of(each) for each in marks] if with_keys else None
    steps.hold_at = step
    rolling = asyncio.create_task(other.pointers.rollback(topic.log, TEPHRA, stamps))
    await steps.held.wait()
    await keeper.pointers.decide([topic.log], TEPHRA, COMMITTED)
    before = await kinds(keeper, topic)
    steps.go_on.set()
    if step == "rollback-noted":
        with pytest.raises(TransactionConflictError, match="has committed"):
            await rolling
        assert before == ["direct", "direct", "commit"]
    else:
        assert await rolling is not None
        assert before == ["void", "void", "void", "commit"]
    assert await kinds(keeper, topic) == before


async def test_a_forced_rollback_that_a_report_overtakes_is_a_purge(
    keeper: MongoStore, other: MongoStore, steps: Steps
) -> None:
    (topic,) = await topics_of(keeper, "a")
    await publish(keeper, topic, "a", "b")
    steps.hold_at = "rollback-noted"
    rolling = asyncio.create_task(other.pointers.rollback(topic.log, TEPHRA, None, force=True))
    await steps.held.wait()
    await keeper.pointers.decide([topic.log], TEPHRA, COMMITTED)
    steps.go_on.set()
    assert await rolling is not None
    assert await kinds(keeper, topic) == ["void", "void", "commit", "void"]
    assert (await keeper.topics.log(topic).locate()).purged > 0


@pytest.mark.parametrize("step", ROLLBACK_STEPS)
async def test_a_rollback_that_was_cut_before_a_commit_is_complete_or_never_done(
    keeper: MongoStore,
    other: MongoStore,
    steps: Steps,
    database: Database[Document],
    clock: VirtualClock,
    step: str,
) -> None:
    (topic,) = await topics_of(keeper, "a")
    await publish(keeper, topic, "a")
    await kill(steps, step, 1, lambda: other.pointers.rollback(topic.log, TEPHRA, None))
    await keeper.pointers.decide([topic.log], TEPHRA, COMMITTED)
    expected = ["direct", "commit"] if step == "rollback-noted" else ["void", "void", "commit"]
    for _ in range(2):
        assert await kinds(keeper, topic) == expected
        clock.ms += _SETTLED_MS
        await keeper.pointers.keep()
    assert counts(database)[2] == 0
    with pytest.raises(TransactionConflictError):
        await other.pointers.rollback(topic.log, TEPHRA, None)


async def test_a_rollback_meets_the_record_of_a_report_whose_entries_are_missing(
    keeper: MongoStore, other: MongoStore, steps: Steps, clock: VirtualClock
) -> None:
    topics = await topics_of(keeper, "a", "b")
    logs = [topic.log for topic in topics]
    for topic in topics:
        await publish(keeper, topic, "x")
    for step, times in (("recorded", 1), ("decision", 1)):
        await kill(steps, step, times, lambda: other.pointers.decide(logs, TEPHRA, COMMITTED))
        for log in logs:
            with pytest.raises(TransactionConflictError, match="has committed"):
                await keeper.pointers.rollback(log, TEPHRA, None)
        with pytest.raises(TransactionConflictError, match="has committed"):
            await keeper.pointers.decide(logs, TEPHRA, ABORTED)
    assert [await kinds(keeper, each) for each in topics] == [["direct", "commit"], ["direct"]]
    clock.ms += _SETTLED_MS
    await keeper.pointers.keep()
    for topic in topics:
        assert await kinds(keeper, topic) == ["direct", "commit"]


async def test_a_time_out_does_not_overtake_a_report_that_was_cut(
    keeper: MongoStore, other: MongoStore, steps: Steps, clock: VirtualClock
) -> None:
    topics = await topics_of(keeper, "a", "b")
    logs = [topic.log for topic in topics]
    for topic in topics:
        await publish(keeper, topic, "x")
    await kill(steps, "decision", 1, lambda: other.pointers.decide(logs, TEPHRA, COMMITTED))
    clock.ms += TIMEOUT_MS + 1
    assert await keeper.pointers.keep() == 0
    for topic in topics:
        assert await kinds(keeper, topic) == ["direct", "commit"]


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize(("step", "times"), [("recorded", 1), ("late", 1), ("late", 2)])
async def test_a_late_commit_that_was_cut_is_completed_and_publishes_each_message_once(
    keeper: MongoStore,
    other: MongoStore,
    steps: Steps,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    times: int,
    is_kept: bool,
) -> None:
    monkeypatch.setattr("oplogd.store.mongo.decisions.late._ENTRIES", 2)
    (topic,) = await topics_of(keeper, "a")
    await publish(keeper, topic, "a")
    await store_messages(keeper, topic, "b", "c")
    await publish_stored(keeper, topic)
    await store_messages(keeper, topic, "never published")
    await publish(keeper, topic, "other", pointer=7)
    clock.ms += TIMEOUT_MS + 1
    assert await keeper.pointers.keep() == 2
    report = functools.partial(other.pointers.decide, [topic.log], TEPHRA, COMMITTED)
    await kill(steps, step, times, report)
    if is_kept:
        clock.ms += _SETTLED_MS
        await keeper.pointers.keep()
        assert await late(keeper, topic) == ["a", "b", "c"]
    marks = await keeper.pointers.decide([topic.log], TEPHRA, COMMITTED)
    assert await report() == marks
    assert await late(keeper, topic) == ["a", "b", "c"]
    assert await seen(keeper, topic) == ["a", "b", "c", "other"]
    assert [each.pointer for each in await keeper.pointers.timed_out(topic.log, 9)] == [7]


async def test_late_commits_of_two_agents_publish_each_message_once(
    keeper: MongoStore, other: MongoStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.mongo.decisions.late._ENTRIES", 3)
    (topic,) = await topics_of(keeper, "a")
    await publish(keeper, topic, *"abcdefgh")
    clock.ms += TIMEOUT_MS + 1
    await keeper.pointers.keep()
    answers = await asyncio.gather(
        *(each.pointers.decide([topic.log], TEPHRA, COMMITTED) for each in (keeper, other) * 2)
    )
    assert answers == [answers[0]] * 4
    assert await late(keeper, topic) == [*"abcdefgh"]


async def test_a_forced_rollback_takes_what_another_agent_still_publishes_late(
    keeper: MongoStore,
    other: MongoStore,
    steps: Steps,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.store.mongo.decisions.late._ENTRIES", 1)
    (topic,) = await topics_of(keeper, "a")
    await publish(keeper, topic, "a", "b", "c")
    clock.ms += TIMEOUT_MS + 1
    await keeper.pointers.keep()
    steps.hold_at = "late"
    report = asyncio.ensure_future(other.pointers.decide([topic.log], TEPHRA, COMMITTED))
    await steps.held.wait()
    assert await keeper.pointers.rollback(topic.log, TEPHRA, None, force=True) is not None
    steps.go_on.set()
    await report
    assert await kinds(keeper, topic) == [*["void"] * 3, "abort", *["void"] * 4]


async def test_a_record_that_was_made_again_is_not_taken_for_the_one_before(
    keeper: MongoStore,
) -> None:
    reports = Reports(keeper.link)
    help_ = keeper.pointers._rollbacks.help
    versions = set()
    for _ in range(3):
        await reports.claim(TEPHRA, 1, "token", help_)
        versions.add((await reports.find(TEPHRA))["v"])
        await reports.release(TEPHRA, 1, "token")
    assert len(versions) == 3


async def test_a_sweep_that_was_cut_names_all_entries_that_it_has_voided(
    plain_url: str, make_store: MakeStore, steps: Steps, keeper: MongoStore
) -> None:
    (topic,) = await topics_of(keeper, "a")
    await publish(keeper, topic, "a", "b")
    await keeper.pointers.decide([topic.log], TEPHRA, ABORTED)
    rollbacks = keeper.topics.sweeper._leaving._rollbacks
    (note,) = await rollbacks.note(TEPHRA, topic.log, None, is_free=True)
    keeper.link.timing = Timing(at_step=steps)
    await kill(steps, "voided", 1, lambda: rollbacks.complete(note))
    await keeper.topics.sweep()
    await keeper.topics.sweep()
    assert await kinds(keeper, topic) == ["void", "void", "abort", "void"]


async def test_the_record_of_a_report_leaves_with_its_last_decision(
    keeper: MongoStore, database: Database[Document], clock: VirtualClock
) -> None:
    topics = await topics_of(keeper, "a", "b")
    await keeper.pointers.decide([each.log for each in topics], TEPHRA, COMMITTED)
    leaving = keeper.topics.sweeper._leaving
    for count, topic in enumerate(reversed(topics), -1):
        documents = [*database["oplog_entries"].find({"_id": {"$regex": f"^{topic.log:06x}"}})]
        await leaving.remove_stored(topic.log, documents)
        assert database["oplog_reports"].count_documents({}) == -count
    await keeper.pointers.decide([topics[0].log], 7, COMMITTED)


# --- Agents of earlier versions ---


async def test_a_rollback_by_an_agent_of_an_earlier_version_is_refused(
    keeper: MongoStore, database: Database[Document]
) -> None:
    """It notes each rollback before it changes anything, without the member ``u``."""
    (topic,) = await topics_of(keeper, "a")
    marks = await publish(keeper, topic, "a")
    await keeper.pointers.keep()
    with pytest.raises(DuplicateKeyError):
        database["oplog_rollbacks"].insert_one({"_id": f"{TEPHRA:016x}{topic.log:06x}{'0' * 24}"})
    assert await keeper.pointers.rollback(topic.log, TEPHRA, [*map(stamp_of, marks)]) is not None


async def test_a_decision_of_an_agent_of_an_earlier_version_counts_as_a_report(
    keeper: MongoStore, database: Database[Document]
) -> None:
    topics = await topics_of(keeper, "a", "b")
    for pointer, decision in ((7, COMMITTED), (8, ABORTED)):
        for topic in topics:
            await publish(keeper, topic, "a", pointer=pointer)
        await keeper.pointers.decide([topics[0].log], pointer, decision)
    database["oplog_reports"].delete_many({})
    with pytest.raises(TransactionConflictError, match="pointer 7 has committed"):
        await keeper.pointers.rollback(topics[0].log, 7, None)
    for pointer, decision in ((7, ABORTED), (8, COMMITTED)):
        with pytest.raises(TransactionConflictError):
            await keeper.pointers.decide([each.log for each in topics], pointer, decision)
    assert await kinds(keeper, topics[1]) == ["direct", "direct"]
    assert await keeper.pointers.rollback(topics[0].log, 7, None, force=True) is not None


async def test_an_older_agent_with_the_lease_is_named(
    keeper: MongoStore, other: MongoStore, database: Database[Document]
) -> None:
    assert (await other.stats()).warnings == ()
    older = {"$set": {"holder": "host:1:abcd"}, "$inc": {"revision": 1}}
    database["oplog_meta"].update_one({"_id": LEASE}, older)
    await other.lease.hold()
    (warning,) = (await other.stats()).warnings
    assert warning.startswith("the agent host:1:abcd is of an earlier version and holds the lease")
    own = {"$set": {"knows": "host:1:abcd"}, "$inc": {"revision": 1}}
    database["oplog_meta"].update_one({"_id": LEASE}, own)
    await other.lease.hold()
    assert (await other.stats()).warnings == ()
