"""The streams of named consumers: their starts, their terms and their ends."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import pytest

from tests.contract.wire.consumers.consumers import ConsumerClient, ShardStream
from tests.contract.wire.store_kinds import (
    TRIMMING,
    StoreKind,
    on_each_driver,
    on_one_store,
)
from tests.contract.wire.topics.topics import TopicClient
from tests.contract.wire.transactions import TransactionClient, record
from tests.kits.contract.shards import spread_type
from tests.kits.contract.wire import (
    RESET,
    SSE,
    Target,
    data_of,
    event_of,
    fresh_type,
    id_of,
    operation,
    said,
    wait_until,
)
from tests.kits.servers.stores import new_place

RESET_OF_TOPIC = b"id: 0\nevent: reset\ndata:\n\n"


def is_checkpoint(block: bytes) -> bool:
    return event_of(block) == ""


def events(stream: ShardStream, count: int) -> list[bytes]:
    """Return the next blocks that are no checkpoints."""
    found: list[bytes] = []
    while len(found) < count:
        block = stream.block()
        assert block, f"the stream ended after {found}"
        found += [] if is_checkpoint(block) else [block]
    return found


def payloads(stream: ShardStream, count: int) -> list[str]:
    return [data_of(each)["payload"] for each in events(stream, count)]


# --- The oplog ---


def test_the_next_reader_begins_behind_the_acknowledged_operation(
    target: Target, consumer: ConsumerClient
) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "old", type_))
    consumer.create(types=[type_])
    target.store(*(operation("insert", each, type_) for each in "abc"))
    with consumer.follow() as stream:
        assert stream.header("Content-Type") == "text/event-stream; charset=utf-8"
        assert stream.header("Oplog-Shard") is None
        first = stream.term
        blocks = events(stream, 3)
        assert [said(each) for each in blocks] == [("insert", each) for each in "abc"]
        consumer.acknowledge(stream, id_of(blocks[1]))
        shard = consumer.shard()
        assert (shard["position"], shard["term"]) == (id_of(blocks[1]), first)
        assert shard["reader"].endswith(f":{stream.address[1]}")
        assert shard["acknowledged"] is not None
    with consumer.follow() as stream:
        assert stream.term == first + 1
        assert events(stream, 1) == blocks[2:]
        target.store(operation("delete", "c", type_))
        assert [said(each) for each in events(stream, 1)] == [("delete", "c")]


def test_every_stream_has_checkpoints_and_a_quiet_shard_may_acknowledge_them(
    target: Target, consumer: ConsumerClient
) -> None:
    consumer.create(types=[fresh_type()])
    with consumer.follow() as stream:
        first = stream.block()
        assert is_checkpoint(first)
        target.store(operation("insert", "other", fresh_type()))
        block = stream.block()
        while id_of(block) <= id_of(first):
            block = stream.block()
        assert is_checkpoint(block)
        consumer.acknowledge(stream, id_of(block))
    assert consumer.position() == id_of(block)
    with consumer.follow() as stream:
        assert id_of(stream.block()) >= id_of(block)


def test_a_copy_goes_on_for_its_term_and_begins_anew_for_the_next(
    target: Target, consumer: ConsumerClient
) -> None:
    type_ = fresh_type()
    target.store(*(operation("insert", each, type_) for each in "ab"))
    consumer.create(types=[type_], start="copy")
    with consumer.follow() as stream:
        term = stream.term
        blocks = events(stream, 4)
        assert blocks[0] == RESET
        assert [said(each) for each in blocks[1:]] == [
            ("insert", "a"),
            ("insert", "b"),
            ("live", ""),
        ]
        consumer.acknowledge(stream, id_of(blocks[0]))
        consumer.acknowledge(stream, id_of(blocks[2]))
    assert consumer.position() == "0"
    with consumer.follow(f"?term={term}") as stream:
        assert stream.term == term
        rest = stream.until("live")
        assert RESET not in rest
        assert said(rest[-2]) == ("insert", "b")
    with consumer.follow() as stream:
        assert stream.term == term + 1
        assert events(stream, 4)[0] == RESET
    with consumer.follow(f"?term={term + 1}") as stream:
        live = events(stream, 4)[3]
        consumer.acknowledge(stream, id_of(live))
    assert consumer.position() == id_of(live)
    target.store(operation("update", "a", type_))
    with consumer.follow() as stream:
        assert [said(each) for each in events(stream, 1)] == [("update", "a")]


def test_each_shard_has_its_operations_and_its_position(
    target: Target, consumer: ConsumerClient
) -> None:
    ids, total = [str(number) for number in range(12)], 3
    type_ = spread_type(ids, 2, total)
    consumer.create(types=[type_], shards=total)
    target.store(*(operation("insert", each, type_) for each in ids))
    parts: list[list[str]] = []
    with ExitStack() as stack:
        for number in range(total):
            plain = stack.enter_context(target.follow("0", types=type_, shard=f"{number}/{total}"))
            wanted = [said(each)[1] for each in plain.until("live")[1:-1]]
            stream = stack.enter_context(consumer.follow(f"?shard={number}"))
            assert stream.header("Oplog-Shard") == f"{number}/{total}"
            blocks = events(stream, len(wanted))
            assert [said(each)[1] for each in blocks] == wanted
            if number != 1:
                consumer.acknowledge(stream, id_of(blocks[-1]))
            parts.append(wanted)
    assert sorted(chain(*parts), key=int) == ids
    for number, again in enumerate([[], parts[1], []]):
        with consumer.follow(f"?shard={number}") as stream:
            target.store(*(operation("update", each, type_) for each in ids))
            found = [said(each) for each in events(stream, len(again) + len(parts[number]))]
            assert found[: len(again)] == [("insert", each) for each in again]
            consumer.acknowledge(
                stream, id_of(bytes(stream.received).rsplit(b"\n\n", 2)[-2] + b"\n\n")
            )


# --- Topics ---


def test_the_next_reader_begins_behind_the_acknowledged_message(
    topic: TopicClient, consumer: ConsumerClient
) -> None:
    topic.store(*"abc")
    consumer.create(topic.name, start="copy")
    with consumer.follow() as stream:
        assert payloads(stream, 3) == [*"abc"]
    messages = topic.polled()
    assert consumer.acknowledging(stream.term, messages[1]["id"]).status == 204
    with consumer.follow() as stream:
        topic.store("d")
        assert payloads(stream, 2) == ["c", "d"]


def test_isolation_decides_when_records_of_a_transaction_come(
    target: Target, topic: TopicClient
) -> None:
    committed = ConsumerClient(target).create(topic.name)
    uncommitted = ConsumerClient(target).create(topic.name, isolation="read_uncommitted")
    with committed.follow() as late, uncommitted.follow() as early:
        kept, aborted = TransactionClient(target), TransactionClient(target)
        kept.write(record(topic, 0, "kept"))
        aborted.write(record(topic, 0, "aborted"))
        assert sorted(payloads(early, 2)) == ["aborted", "kept"]
        topic.store("between")
        aborted.abort()
        kept.commit(1)
        blocks = events(late, 2)
        assert [data_of(each)["payload"] for each in blocks] == ["between", "kept"]
        committed.acknowledge(late, id_of(blocks[0]))
    with committed.follow() as late:
        assert payloads(late, 1) == ["kept"]


# --- Terms ---


def test_a_reader_that_takes_a_shard_ends_the_stream_of_the_one_before(
    target: Target, consumer: ConsumerClient
) -> None:
    """Of several workers another one may have it: then the stream ends within a second."""
    consumer.create(shards=2)
    with ExitStack() as stack:
        other = stack.enter_context(consumer.follow("?shard=1"))
        streams = [stack.enter_context(consumer.follow("?shard=0"))]
        for _ in range(4):
            streams.append(stack.enter_context(consumer.follow("?shard=0")))
            streams[-2].rest()
        terms = [each.term for each in streams]
        assert terms == [*range(terms[0], terms[0] + 5)]
        last = streams[-1]
        for term in terms[:-1]:
            reply = consumer.acknowledging(term, "1", shard=0)
            assert reply.status == 412
            assert f"has term {terms[-1]}, not {term}" in reply.problem()
            refused = consumer.request("GET", f"/stream?shard=0&term={term}", headers=SSE)
            assert refused.status == 412
        assert consumer.acknowledging(terms[-1] + 1, "1", shard=0).status == 412
        type_ = fresh_type()
        target.store(*(operation("insert", str(each), type_) for each in range(9)))
        for stream in (last, other):
            assert type_.encode() in stream.read_past(type_.encode())


def test_a_seek_and_a_deletion_end_streams(consumer: ConsumerClient) -> None:
    consumer.create(shards=2)
    with consumer.follow("?shard=0") as stream, consumer.follow("?shard=1") as other:
        assert consumer.seeking("copy", shard=0).status == 200
        stream.rest()
        assert consumer.acknowledging(stream.term, "1").status == 412
        assert consumer.acknowledging(other.term, "1", shard=1).status == 204
        assert consumer.request("DELETE").status == 204
        other.rest()
        assert consumer.acknowledging(other.term, "1", shard=1).status == 404


@pytest.fixture
def agents(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Target]]:
    """Two agents on one store of the kind ``request.param``."""
    place = new_place(request, request.param).create()
    with ExitStack() as stack:
        targets = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            targets.append(Target.of(stack.enter_context(place.agent(tmp_path / name))))
        yield targets


@pytest.mark.mongo
@pytest.mark.parametrize("agents", ["mongo-plain", "mongo-capped"], indirect=True)
def test_a_reader_at_another_agent_takes_the_shard(agents: list[Target]) -> None:
    one = ConsumerClient(agents[0]).create()
    two = one.at(agents[1])
    with one.follow() as first, two.follow() as second:
        first.rest()
        assert second.term == first.term + 1
        agents[0].store(operation("insert", "a", "thing"))
        (block,) = events(second, 1)
        assert one.acknowledging(first.term, id_of(block)).status == 412
        one.acknowledge(second, id_of(block))
        assert two.position() == id_of(block)
        with one.follow() as third:
            second.rest()
            assert two.seeking("now").status == 200
            third.rest()
        with one.follow() as fourth:
            two.request("DELETE")
            fourth.rest()
            assert one.acknowledging(fourth.term, id_of(block)).status == 404


# --- The life of agents and logs ---


@on_each_driver
def test_a_position_outlives_the_agent(
    store_kind: StoreKind, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    sort = {"Mongo": "mongo-plain"}.get(type(store_kind).__name__, "sqlite")
    place = new_place(request, sort).create()
    flags = ("--workers", "2") if type(store_kind).__name__ == "Workers" else ()
    with place.agent(tmp_path, *flags) as agent:
        target = Target.of(agent)
        consumer = ConsumerClient(target).create(start="copy")
        target.store(*(operation("insert", each, "thing") for each in "abc"))
        with consumer.follow() as stream:
            live = stream.until("live")[-1]
            consumer.acknowledge(stream, id_of(live))
            target.store(operation("insert", "d", "thing"))
            consumer.acknowledge(stream, id_of(events(stream, 1)[0]))
        target.store(operation("insert", "e", "thing"))
        before = consumer.shard()
        agent.kill()
    with place.agent(tmp_path, *flags) as agent:
        consumer = consumer.at(Target.of(agent))
        after = consumer.shard()
        kept = ("position", "term", "reader", "acknowledged")
        assert [after[each] for each in kept] == [before[each] for each in kept]
        with consumer.follow(f"?term={stream.term}") as again:
            assert [said(each) for each in events(again, 1)] == [("insert", "e")]
        with consumer.follow() as again:
            assert again.term == stream.term + 1
            assert [said(each) for each in events(again, 1)] == [("insert", "e")]


@pytest.mark.parametrize("store_kind", TRIMMING, indirect=True)
def test_a_position_that_has_left_the_log_is_followed_by_the_changes_since(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.agent(tmp_path, "--capped-collection-size", "4096") as agent:
        target = Target.of(agent)
        consumer = ConsumerClient(target).create(start="copy")
        target.store(*(operation("insert", each, "thing") for each in ("gone", "kept")))
        with consumer.follow() as stream:
            live = stream.until("live")[-1]
            consumer.acknowledge(stream, id_of(live))
        target.store(operation("delete", "gone", "thing"))
        names = [f"n{number}" for number in range(200)]
        for name in names:
            target.store(operation("insert", name, "thing"))
        assert wait_until(lambda: target.status()["store"]["oldest_id"] > id_of(live))
        with consumer.follow() as stream:
            found = [said(each) for each in stream.until("live") if not is_checkpoint(each)]
        assert ("reset", "") not in found
        assert ("delete", "gone") in found
        assert {("insert", name) for name in names} <= {*found}


@on_one_store
def test_a_position_of_another_history_is_followed_by_reset(
    target: Target, consumer: ConsumerClient
) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "a", type_))
    beyond = "ffffff00" + "0000" + "0" * 11 + "9"
    consumer.create(types=[type_], start=beyond)
    with consumer.follow() as stream:
        blocks = stream.until("live")
        assert blocks[0] == RESET
        consumer.acknowledge(stream, id_of(blocks[-1]))
    assert consumer.position() == id_of(blocks[-1]) < beyond


@on_one_store
def test_messages_that_have_gone_are_followed_by_reset(
    target: Target, topic: TopicClient, of_topic: ConsumerClient
) -> None:
    topic.store("a")
    with of_topic.follow() as stream:
        of_topic.acknowledge(stream, id_of(events(stream, 1)[0]))
    topic.request("DELETE")
    topic.create()
    topic.store("b")
    with of_topic.follow() as stream:
        assert stream.block() == RESET_OF_TOPIC
        of_topic.acknowledge(stream, "0")
        block = events(stream, 1)[0]
        assert data_of(block)["payload"] == "b"
        of_topic.acknowledge(stream, id_of(block))
    assert of_topic.position() == id_of(block)


@on_one_store
def test_a_reader_that_is_refused_leaves_the_shard_to_the_one_that_has_it(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.agent(tmp_path, "--max-clients", "1") as agent:
        target = Target.of(agent)
        consumer = ConsumerClient(target).create()
        with consumer.follow() as stream:
            assert consumer.request("GET", "/stream", headers=SSE).status == 503
            assert consumer.shard()["term"] == stream.term
            target.store(operation("insert", "a", "thing"))
            consumer.acknowledge(stream, id_of(events(stream, 1)[0]))


@on_one_store
def test_streams_of_consumers_are_shown_under_their_names(
    target: Target, consumer: ConsumerClient
) -> None:
    consumer.create()
    with consumer.follow("?name=other"):
        assert consumer.name in [each["name"] for each in target.status()["consumers"]]


@on_one_store
def test_a_last_event_id_is_ignored(target: Target, consumer: ConsumerClient) -> None:
    type_ = fresh_type()
    consumer.create(types=[type_])
    target.store(operation("insert", "a", type_))
    with consumer.follow("", {"Last-Event-ID": "f" * 24}) as stream:
        assert said(events(stream, 1)[0]) == ("insert", "a")
