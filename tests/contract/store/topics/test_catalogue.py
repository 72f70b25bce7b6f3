"""The catalogue of topics in every store: create, change, delete, find, list."""

import asyncio

import pytest

from oplogd.errors import TopicExistsError, TopicNotFoundError
from oplogd.store.topics import DEFAULT_TTL, MessageBatch, Placed, Refused, Topic, Topics
from tests.kits.store.kits import KITS, Kit
from tests.kits.store.messages import NAME, messages, named, payloads_of, publish

# More than a first batch of the driver, and than two of the LOOK_UP.
MANY = 110
LOOK_UP = 50


async def test_a_new_store_has_no_topics(topics: Topics) -> None:
    assert await topics.find(NAME) is None
    assert await topics.in_namespace("ns") == []
    assert await topics.current([1]) == {}
    assert (await topics.stats()).topics == 0
    assert await topics.default_ttl() == DEFAULT_TTL


@pytest.mark.parametrize("ttl", [None, 1, 86_400 * 365 * 100])
async def test_a_topic_is_found_as_it_was_created(
    topic_kit: Kit, topics: Topics, ttl: int | None
) -> None:
    created = await topics.create(NAME, ttl)
    assert created == Topic(created.log, NAME, ttl)
    for each in (topics, (await topic_kit.open()).topics):
        assert await each.find(NAME) == created
        assert await each.in_namespace("ns") == [created]
        assert await each.current([created.log]) == {created.log: created}
        assert (await each.stats()).topics == 1


async def test_errors_name_the_topic(topics: Topics) -> None:
    with pytest.raises(TopicNotFoundError) as missing:
        await topics.delete(NAME)
    topic = await topics.create(NAME, None)
    with pytest.raises(TopicExistsError) as taken:
        await topics.create(NAME, None)
    await topics.delete(NAME)
    with pytest.raises(TopicNotFoundError) as located:
        await topics.log(topic).locate()
    with pytest.raises(TopicNotFoundError) as read:
        await topics.log(topic).read(0, 1)
    assert str(taken.value) == "the topic ns/t exists already"
    assert {str(each.value) for each in (missing, located, read)} == {"there is no topic ns/t"}


async def test_a_name_is_taken_until_its_topic_is_deleted(topics: Topics) -> None:
    first = await topics.create(NAME, None)
    with pytest.raises(TopicExistsError):
        await topics.create(NAME, 5)
    assert await topics.find(NAME) == first
    await topics.delete(NAME)
    second = await topics.create(NAME, 5)
    assert await topics.find(NAME) == second
    assert second.log != first.log


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_of_simultaneous_creations_of_a_name_one_succeeds(
    topic_kit: Kit, topics: Topics
) -> None:
    other = (await topic_kit.open()).topics
    results = await asyncio.gather(
        *(each.create(NAME, None) for each in (topics, other) * 5), return_exceptions=True
    )
    assert sum(isinstance(result, Topic) for result in results) == 1
    assert sum(isinstance(result, TopicExistsError) for result in results) == 9
    assert len(await topics.in_namespace("ns")) == 1


async def test_a_change_sets_the_ttl_and_none_restores_the_default(topics: Topics) -> None:
    created = await topics.create(NAME, None)
    for ttl in (7, 5, None):
        assert await topics.change(NAME, ttl) == Topic(created.log, NAME, ttl)
        assert await topics.find(NAME) == Topic(created.log, NAME, ttl)


async def test_a_topic_that_does_not_exist_can_be_neither_changed_nor_deleted(
    topics: Topics,
) -> None:
    await topics.create(named("other"), None)
    for _ in range(2):
        with pytest.raises(TopicNotFoundError):
            await topics.change(NAME, 5)
        with pytest.raises(TopicNotFoundError):
            await topics.delete(NAME)
        await topics.create(NAME, None)
        await topics.delete(NAME)


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_names_that_differ_in_case_or_namespace_are_different_topics(topics: Topics) -> None:
    names = [named("t"), named("T"), named("t", "NS"), named("t", "n"), named("s.t", "n")]
    names += [named("t", "n.s"), named("_"), named("-"), named("..."), named("x" * 249, "y" * 249)]
    made = [await topics.create(name, None) for name in names]
    assert len({topic.log for topic in made}) == len(names)
    for topic in made:
        await publish(topics, topic, f"for {topic.name}")
    for topic in made:
        assert await topics.find(topic.name) == topic
        assert await payloads_of(topics, topic) == [f"for {topic.name}"]


async def test_a_namespace_lists_its_own_topics_sorted_by_name(topics: Topics) -> None:
    for name in ("b", "a-b", "a.b", "a", "B", "a_b", "10", "9"):
        await topics.create(named(name), None)
    await topics.create(named("c", "ns.x"), None)
    await topics.create(named("gone"), None)
    await topics.delete(named("gone"))
    listed = [topic.name.topic for topic in await topics.in_namespace("ns")]
    assert listed == sorted(["b", "a-b", "a.b", "a", "B", "a_b", "10", "9"])
    assert [topic.name.topic for topic in await topics.in_namespace("ns.x")] == ["c"]
    assert await topics.in_namespace("n") == []


async def test_current_tells_which_logs_still_exist(topics: Topics) -> None:
    kept, gone = await topics.create(named("kept"), 5), await topics.create(named("gone"), None)
    await topics.delete(gone.name)
    again = await topics.create(gone.name, 7)
    wanted = [kept.log, gone.log, again.log, 8_000_000]
    assert await topics.current(wanted) == {kept.log: kept, again.log: again}
    assert await topics.current([]) == {}


async def test_the_number_of_a_deleted_log_is_never_used_again(
    topic_kit: Kit, topics: Topics
) -> None:
    used = set()
    for _ in range(3):
        topic = await topics.create(NAME, None)
        assert topic.log not in used
        assert topic.log >= 1
        used.add(topic.log)
        await topics.delete(NAME)
        await topics.sweep()
        topics = (await topic_kit.open()).topics


async def test_a_deleted_topic_refuses_messages_and_reads_for_every_agent(
    topic_kit: Kit, topics: Topics
) -> None:
    other = (await topic_kit.open()).topics
    topic = await topics.create(NAME, None)
    log, other_log = topics.log(topic), other.log(topic)
    await publish(other, topic, "a")
    await topics.delete(NAME)
    for _ in range(2):
        for each in (topics, other):
            assert await each.append([MessageBatch(topic.log, messages("b"))]) == [Refused.DELETED]
        for handle in (log, other_log):
            with pytest.raises(TopicNotFoundError):
                await handle.read(0, 10)
            with pytest.raises(TopicNotFoundError):
                await handle.locate()
        await topics.sweep()
    assert await other.find(NAME) is None


async def test_a_topic_created_again_is_empty_for_an_agent_that_publishes_to_the_old_one(
    topic_kit: Kit, topics: Topics
) -> None:
    other = (await topic_kit.open()).topics
    old = await topics.create(NAME, None)
    await publish(other, old, "a")
    await topics.delete(NAME)
    new = await topics.create(NAME, None)
    outcomes = await other.append(
        [
            MessageBatch(old.log, messages("b")),
            MessageBatch(new.log, messages("c")),
            MessageBatch(old.log, messages("d")),
        ]
    )
    assert [isinstance(outcome, Placed) for outcome in outcomes] == [False, True, False]
    assert await payloads_of(topics, new) == ["c"]


@pytest.mark.parametrize("set_back", [0, 60_000])
async def test_every_id_of_a_deleted_topic_is_before_the_front_of_the_next_one(
    topic_kit: Kit, topics: Topics, set_back: int
) -> None:
    """Also in the same ms, or with the clock set back: otherwise the last id had no gap."""
    for _ in range(3):
        old = await topics.create(NAME, None)
        last = (await publish(topics, old, "a", "b")).last
        await topics.delete(NAME)
        topic_kit.clock.ms -= set_back
        topics = (await topic_kit.open()).topics
        new = await topics.create(NAME, None)
        front = (await topics.log(new).locate(last.ms, last.sequence)).front
        assert front.offset == 0
        assert (last.ms, last.sequence) < (front.ms, front.sequence)
        first = (await publish(topics, new, "c")).first
        assert (front.ms, front.sequence) < (first.ms, first.sequence)
        await topics.delete(NAME)


async def test_only_an_explicit_default_changes_the_default_of_the_store(topic_kit: Kit) -> None:
    for given, expected in [(100, 100), (None, 100), (50, 50), (None, 50)]:
        store = await topic_kit.open(topic_ttl=given)
        assert await store.topics.default_ttl() == expected


@pytest.mark.thorough
async def test_more_topics_than_a_page_are_listed_and_found(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.mongo.link.topic_layout.parts.__defaults__", (LOOK_UP,))
    for number in range(MANY):
        await topics.create(named(f"t{number:05}"), None)
    listed = await topics.in_namespace("ns")
    assert [topic.name.topic for topic in listed] == [f"t{number:05}" for number in range(MANY)]
    assert (await topics.stats()).topics == MANY
    logs = [topic.log for topic in listed]
    assert await topics.current(logs) == dict(zip(logs, listed, strict=True))
    outcomes = await topics.append([MessageBatch(log, messages("a")) for log in logs])
    assert [outcome.last.offset for outcome in outcomes if isinstance(outcome, Placed)] == [
        1
    ] * MANY
