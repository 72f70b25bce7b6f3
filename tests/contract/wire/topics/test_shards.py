"""Shards of topics: streams and polls, with transactions and pointers, and polls of the oplog."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.wire.pointers.pointers import HELD_BY, PointerClient, report
from tests.contract.wire.store_kinds import on_each_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.contract.wire.transactions import TransactionClient, record
from tests.kits.contract.shards import SHARDS, one_of_each, shard_of
from tests.kits.contract.wire import (
    JSON,
    RawStream,
    Reply,
    Target,
    data_of,
    event_of,
    fresh_type,
    id_of,
    operation,
)

UNCOMMITTED = "read_uncommitted"
COMMITTED = "read_committed"
POSITION = "Oplog-Position"
KEYS = ["", "a", "é", "a/b", 'quote"\\', "\u2028", "😀", *map(str, range(10)), "k" * 1_000]


def keyed(payload: str, key: str) -> dict[str, str]:
    return {"payload": payload, "key": key}


def many() -> list[Any]:
    """Return messages with keys, with the same again, and without; at the end one of each shard."""
    messages: list[Any] = [keyed(f"{key[:9]} once", key) for key in KEYS]
    messages += [{"payload": f"{number} alone"} for number in range(12)]
    messages += [keyed(f"{key[:9]} again", key) for key in KEYS[::2]]
    return [*messages, *(keyed("end", key) for key in one_of_each())]


def of_shard(messages: list[dict[str, Any]], shard: str) -> list[dict[str, Any]]:
    """An empty key is a key. Without a key the id decides."""
    return [each for each in messages if shard_of(each.get("key", each["id"])) == shard]


def poll(
    topic: TopicClient, shard: str, start: str | None, isolation: str = COMMITTED, **members: Any
) -> Reply:
    body = {"startFrom": start, "inclusive": start is None, "isolation": isolation, **members}
    reply = topic.request("POST", f"/poll?shard={shard}", body, JSON)
    assert (reply.status, reply.header("Oplog-Shard")) == (200, shard), reply
    return reply


def polls(topic: TopicClient, shard: str, isolation: str, limit: int) -> Iterator[dict[str, Any]]:
    """Poll on from the positions told, up to the end."""
    position = None
    while True:
        reply = poll(topic, shard, position, isolation, limit=limit)
        assert len(reply.json) <= limit
        yield from reply.json
        if not reply.json:
            return
        position = reply.header(POSITION)
        assert position is not None


def messages_of(stream: RawStream, count: int) -> list[dict[str, Any]]:
    return [{"id": id_of(block), **data_of(block)} for block in stream.take(count)]


def follow(
    topic: TopicClient, shard: str, start: str | None = None, isolation: str = COMMITTED
) -> RawStream:
    return topic.follow(start, f"?shard={shard}&isolation={isolation}")


def check_whole(topic: TopicClient, live: dict[str, RawStream], isolation: str) -> None:
    """Compare all ways to read each shard with a poll of everything.

    ``live``: streams that were there before. Each shard ends with a message of its own.
    """
    everything = topic.polled(isolation=isolation)
    found: list[str] = []
    for shard in SHARDS:
        wanted = of_shard(everything, shard)
        assert wanted, shard
        with live[shard] as stream:
            assert messages_of(stream, len(wanted)) == wanted
        with follow(topic, shard, "0", isolation) as stream:
            assert messages_of(stream, len(wanted)) == wanted
        for place in range(0, len(wanted) - 1, 1 + len(wanted) // 15):
            with follow(topic, shard, wanted[place]["id"], isolation) as stream:
                assert messages_of(stream, len(wanted) - place - 1) == wanted[place + 1 :]
        for limit in (1, 4, 1_000):
            assert list(polls(topic, shard, isolation, limit)) == wanted
        # The end of everything: also a position in another shard is one.
        last = everything[-1]["id"]
        assert poll(topic, shard, last, isolation).json == []
        found += [each["id"] for each in wanted]
    assert sorted(found) == [each["id"] for each in everything]


def connected(topic: TopicClient, isolation: str) -> dict[str, RawStream]:
    return {shard: follow(topic, shard, isolation=isolation) for shard in SHARDS}


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_each_message_comes_in_the_shard_of_its_key_or_its_id(
    topic: TopicClient, isolation: str
) -> None:
    live = connected(topic, isolation)
    topic.store(*many())
    check_whole(topic, live, isolation)


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("rounds", [1, 3], ids=["small", "of several pages"])
def test_a_commit_is_divided_by_the_keys_of_its_records(
    target: Target, topic: TopicClient, isolation: str, rounds: int
) -> None:
    """More than 100 records are not kept in memory."""
    live = connected(topic, isolation)
    aborted, txn = TransactionClient(target), TransactionClient(target)
    records = [record(topic, lsn, **message) for lsn, message in enumerate(many() * rounds)]
    if isolation == COMMITTED:  # other readers would get them
        aborted.write(*records)
    topic.store(*(keyed("before", key) for key in KEYS))
    txn.write(*records)
    if isolation == COMMITTED:
        aborted.abort()
    topic.store(*many())
    txn.commit(len(records))
    topic.store(*(keyed("after", key) for key in one_of_each()))
    check_whole(topic, live, isolation)


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_messages_stored_under_a_pointer_are_divided_where_they_are_published(
    target: Target, topic: TopicClient, isolation: str
) -> None:
    live = connected(topic, isolation)
    pointer = PointerClient(topic, 7)
    pointer.store(*many())
    topic.store(*many())
    pointer.publish()
    assert report(target, 7, "commit", topic).status == 200
    topic.store(*(keyed("after", key) for key in one_of_each()))
    check_whole(topic, live, isolation)


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_the_first_readers_of_shards_get_theirs_of_what_memory_has(
    target: Target, topic: TopicClient, isolation: str
) -> None:
    with topic.follow(query=f"?isolation={isolation}") as stream:
        txn = TransactionClient(target)
        topic.store(*many())
        txn.write(*(record(topic, lsn, **message) for lsn, message in enumerate(many())))
        txn.commit(len(many()))
        topic.store(*many())
        everything = messages_of(stream, 3 * len(many()))
        for shard in SHARDS:
            wanted = of_shard(everything, shard)
            for place in (0, len(wanted) // 2):
                start = wanted[place - 1]["id"] if place else "0"
                with follow(topic, shard, start, isolation) as resumed:
                    assert messages_of(resumed, len(wanted) - place) == wanted[place:]


def test_an_open_pointer_holds_only_the_readers_of_the_shards_of_its_messages(
    target: Target, topic: TopicClient
) -> None:
    snapshots: list[dict[str, Any]] = [{}, {"transaction": {"readPointer": 9, "inProgress": [7]}}]
    keys = dict(zip(SHARDS, one_of_each(), strict=True))
    held, *others = SHARDS
    live = connected(topic, COMMITTED)
    PointerClient(topic, 7).publish(keyed("under a pointer", keys[held]))
    topic.store(*(keyed("after", key) for key in keys.values()))
    everything = topic.polled()
    for shard in others:
        (wanted,) = of_shard(everything, shard)
        assert wanted["payload"] == "after"
        with live[shard] as stream, follow(topic, shard, "0") as copy:
            assert messages_of(stream, 1) == messages_of(copy, 1) == [wanted]
        for members in snapshots:
            reply = poll(topic, shard, None, **members)
            assert (reply.json, reply.header(HELD_BY)) == ([wanted], None)
    for members in reversed(snapshots):
        reply = poll(topic, held, None, **members)
        assert (reply.json, reply.header(HELD_BY)) == ([], "7")
    position = reply.header(POSITION)
    assert report(target, 7, "commit", topic).status == 200
    with live[held] as stream:
        assert messages_of(stream, 2) == of_shard(everything, held)
    assert poll(topic, held, position).json == of_shard(everything, held)


def test_a_poll_reads_on_behind_the_messages_of_other_shards(topic: TopicClient) -> None:
    mine, *others = one_of_each()
    shard, other, *_ = SHARDS
    reply = poll(topic, shard, None)
    assert (reply.json, reply.header(POSITION)) == ([], None)
    for number in range(30):
        topic.store(*(keyed(str(number), others[0]) for _ in range(50)))
    topic.store(keyed("mine", mine), keyed("behind", others[0]))
    *_, last, behind = (page := everything(topic))
    assert (len(page), last["key"]) == (1_502, mine)
    for limit, reached in ((1, last), (2, behind), (1_000, behind)):
        reply = poll(topic, shard, None, limit=limit)
        assert (reply.json, reply.header(POSITION)) == ([last], reached["id"])
    reply = poll(topic, shard, last["id"])
    assert (reply.json, reply.header(POSITION)) == ([], behind["id"])
    reply = poll(topic, shard, behind["id"])
    assert (reply.json, reply.header(POSITION)) == ([], None)
    assert len(list(polls(topic, other, COMMITTED, 1_000))) + 1 == 1_502
    assert poll(topic, SHARDS[2], None).json == []


def everything(topic: TopicClient) -> list[dict[str, Any]]:
    found = topic.polled()
    while page := topic.polled(found[-1]["id"], inclusive=False):
        found += page
    return found


def test_readers_of_each_shard_learn_that_messages_are_gone(topic: TopicClient) -> None:
    topic.store(keyed("a", one_of_each()[0]))
    (message,) = topic.polled()
    for shard in SHARDS:
        reply = poll(topic, shard, "0" * 40)
        assert reply.header("Oplog-Gap") == "1"
        with follow(topic, shard, "0" * 40) as stream:
            assert event_of(stream.block()) == "reset"
            if shard == SHARDS[0]:
                assert reply.json == messages_of(stream, 1) == [message]


def test_an_answer_of_a_shard_has_a_megabyte_of_its_messages(topic: TopicClient) -> None:
    mine, other, *_ = one_of_each()
    for _ in range(4):
        topic.store(keyed("x" * 400_000, mine), keyed("y" * 400_000, other))
    first = poll(topic, SHARDS[0], None)
    rest = poll(topic, SHARDS[0], first.header(POSITION))
    assert [each["key"] for each in (*first.json, *rest.json)] == [mine] * 4
    assert len(first.json) == len(rest.json) == 2


@on_each_store
def test_a_poll_of_the_oplog_has_the_operations_of_a_shard(target: Target) -> None:
    oplog, type_ = TopicClient(target, OPLOG), fresh_type()
    ids = [*map(str, range(20)), "é", "a/b", *one_of_each(f"{type_}/")]
    with target.follow() as stream:
        target.store(operation("insert", "before", fresh_type()))
        before = id_of(stream.block())
        target.store(*(operation("insert", id_, type_) for id_ in ids))
        blocks = stream.take(len(ids))
    for shard in SHARDS:
        wanted = [
            id_of(block)
            for block, id_ in zip(blocks, ids, strict=True)
            if shard_of(f"{type_}/{id_}") == shard
        ]
        for limit in (1, 3, 1_000):
            found, position = [], before
            while page := (reply := poll(oplog, shard, position, limit=limit)).json:
                found += [each["id"] for each in page]
                assert found[-1] <= (reply.header(POSITION) or "") <= id_of(blocks[-1])
                position = reply.header(POSITION) or ""
            assert found == wanted
            assert (reply.header(POSITION) or position) == id_of(blocks[-1])
    other = f"{(int(shard_of(f'{type_}/é', 256).partition('/')[0]) + 1) % 256}/256"
    reply = poll(oplog, other, id_of(blocks[-1]))
    assert (reply.json, reply.header(POSITION)) == ([], None)
