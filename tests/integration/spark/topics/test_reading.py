"""Reads of a topic from a store and through agents, without Spark."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from oplog_sync.errors import MessagesGoneError, SyncError
from oplog_sync.source import OplogDataSource
from oplog_sync.source.positions import Offset
from oplog_sync.source.stream import StreamReader
from oplog_sync.topics.columns import topic_schema
from oplogd.model.message_id import parse_message_id
from oplogd.model.transaction import Isolation
from tests.integration.spark.topics.world import (
    TOPIC,
    between,
    commit,
    payloads_of,
    places,
    polled,
    publish_under,
    report,
    rows_of,
)
from tests.kits.agents.topics import Topic
from tests.kits.agents.transactions import Txn, poll_committed, records
from tests.kits.servers.stores import StorePlace

_QUICK = pytest.mark.parametrize("place", ["sqlite", "mongo-plain"], indirect=True)


@_QUICK
def test_each_committed_message_is_read_once_and_no_aborted_one(
    tmp_path: Path, place: StorePlace
) -> None:
    with place.agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        topic.publish("plain 1", {"payload": "plain 2", "key": "k", "headers": [["a", "1"]]})
        open_txn, aborted = Txn.begin(agent), Txn.begin(agent)
        open_txn.write(*records(topic, "open 1", "open 2"))
        aborted.write(*records(topic, "aborted"))
        topic.publish("plain 3")
        txn = commit(agent, topic, *(f"committed {number}" for number in range(25)))
        aborted.abort()
        publish_under(topic, 7, "reported")
        publish_under(topic, 8, "denied")
        report(topic, 7, "commit")
        report(topic, 8, "abort")
        topic.publish("last")
        messages = polled(topic)
        expected, ids = ([each[name] for each in messages] for name in ("payload", "id"))
        everything = [each["payload"] for each in polled(topic, Isolation.READ_UNCOMMITTED)]
        assert (len(expected), len(everything)) == (30, 34)
        with places(place, agent) as found:
            for name, each in found.items():
                reader = each.batch(partition_rows=7)
                rows = rows_of(reader)
                assert [row["payload"] for row in rows] == expected, name
                assert [row["id"] for row in rows] == ids, name
                assert rows[1]["key"] == "k"
                assert rows[1]["headers"] == [{"key": "a", "value": "1"}]
                assert [row["lsn"] for row in rows if row["lsn"] is not None] == list(range(25))
                txns = {row["txn"] for row in rows if row["lsn"] is not None}
                assert txns == ({txn} if name == "store" else {None})
                uncommitted = each.batch(isolation=Isolation.READ_UNCOMMITTED)
                assert payloads_of(uncommitted) == everything, name
            open_txn.commit(2)
            for each in found.values():
                reader = each.batch()
                assert payloads_of(reader) == [*expected, "open 1", "open 2"]


@_QUICK
def test_a_batch_begins_and_ends_at_ids_within_a_commit(tmp_path: Path, place: StorePlace) -> None:
    with place.agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        topic.publish("first")
        commit(agent, topic, *map(str, range(10)))
        topic.publish("last")
        messages = poll_committed(topic)
        with places(place, agent) as found:
            for each in found.values():
                for first, last in ((0, 11), (1, 5), (3, 4), (4, 10), (10, 11), (5, 5), (6, 2)):
                    start, end = (parse_message_id(messages[at].id) for at in (first, last))
                    reader = each.batch(start=start, end=end)
                    payloads = [message.payload for message in messages[first + 1 : last + 1]]
                    assert payloads_of(reader) == payloads
                reader = each.batch(start=messages[1].ms, end=messages[1].ms + 1)
                expected = [m.payload for m in messages if m.ms == messages[1].ms]
                assert payloads_of(reader) == expected


@_QUICK
def test_a_stream_ends_before_an_undecided_message_and_goes_on_after_its_decision(
    tmp_path: Path, place: StorePlace
) -> None:
    with place.agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        topic.publish("before")
        with places(place, agent) as found:
            origins = {name: each.origin() for name, each in found.items()}
            starts = {name: origin.start("now") for name, origin in origins.items()}
            topic.publish("1")
            publish_under(topic, 5, "held")
            topic.publish("2")
            ends = {}
            for name, origin in origins.items():
                end = ends[name] = origin.latest(starts[name], None)
                assert between(origin, starts[name], end) == ["1"], name
                assert origin.latest(starts[name], 10) == end == origin.head()
                assert origin.latest(end, None) == end
            report(topic, 5, "commit")
            for name, origin in origins.items():
                end = origin.latest(ends[name], None)
                assert origin.is_past(end, ends[name])
                for _ in range(2):
                    assert between(origin, ends[name], end) == ["held", "2"], name


@_QUICK
def test_a_query_for_the_present_messages_ends_if_they_leave_the_topic_meanwhile(
    tmp_path: Path, place: StorePlace
) -> None:
    with place.agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        topic.publish("1", "2", "3")
        readers = {
            (way, on_gap): OplogDataSource(
                {way: where, "topic": TOPIC, "start": "oldest", "onGap": on_gap, "retryFor": "30s"}
            ).streamReader(topic_schema(False))
            for way, where in (("store", str(place.store)), ("agent", agent.url))
            for on_gap in ("fail", "oldest")
        }
        begins = {}
        for name, reader in readers.items():
            begins[name] = reader.latestOffset(reader.initialOffset(), SimpleNamespace(max_rows=1))
            reader.prepareForTriggerAvailableNow()
        topic.delete()
        topic.create()
        for (way, on_gap), reader in readers.items():
            begin = begins[way, on_gap]
            end = reader.latestOffset(begin, None)
            assert end is not begin, way
            if on_gap == "fail":
                with pytest.raises(MessagesGoneError, match="has left the topic"):
                    _read(reader, begin, end)
            else:
                assert _read(reader, begin, end) == []
            assert reader.latestOffset(end, None) is end
            reader.stop()


def _read(reader: StreamReader, begin: Offset, end: Offset) -> list[object]:
    parts = reader.partitions(begin, end)
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@_QUICK
def test_a_limit_divides_no_transaction(tmp_path: Path, place: StorePlace) -> None:
    with place.agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        topic.publish("a", "b", "c")
        commit(agent, topic, *map(str, range(5)))
        topic.publish("d", "e")
        with places(place, agent) as found:
            for each in found.values():
                origin = each.origin()
                position, batches = origin.start("oldest"), []
                while (end := origin.latest(position, 2)) != position:
                    batches.append(between(origin, position, end))
                    position = end
                assert batches == [["a", "b"], ["c"], ["0", "1", "2", "3", "4"], ["d", "e"]]


def test_a_position_that_has_left_the_topic_fails_the_read_or_continues_at_the_oldest(
    tmp_path: Path,
) -> None:
    place = StorePlace(tmp_path / "oplog.db")
    with place.agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        topic.publish("gone 1", "gone 2")
        first = parse_message_id(topic.poll(limit=1)[0].id)
        with places(place, agent) as found:
            starts = {name: each.origin(start=first).start("now") for name, each in found.items()}
            topic.delete()
            topic.create().publish("new")
            for name, each in found.items():
                origin = each.origin()
                end = origin.latest(starts[name], None)
                with pytest.raises(
                    MessagesGoneError, match=r"left the topic shop/orders; .* onGap to old"
                ):
                    between(origin, starts[name], end)
                assert between(each.origin(fails_on_gap=False), starts[name], end) == ["new"]
            topic.delete()
            for each in found.values():
                with pytest.raises(SyncError, match="there is no topic shop/orders"):
                    each.batch().partitions()
