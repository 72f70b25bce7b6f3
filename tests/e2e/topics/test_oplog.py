"""The built-in topic ``system/oplog`` is the log of operations."""

import json
from pathlib import Path

from tests.kits.agents.streams import ByteStream, operation
from tests.kits.agents.topics import Topic, numbered, ok
from tests.kits.servers.stores import StorePlace

OPLOG = "system/oplog"


def test_operations_published_to_system_oplog_reach_consumers_and_states(
    place: StorePlace, tmp_path: Path
) -> None:
    with place.agent(tmp_path) as agent, place.agent(tmp_path) as other:
        topic = Topic(agent, OPLOG)
        with ByteStream(agent) as ops, ByteStream(other) as elsewhere, topic.stream() as stream:
            topic.publish(
                operation("insert", "a"),
                json.dumps(operation("insert", "b", "thing", "x/y")),
                {"payload": json.dumps(operation("update", "a"))},
            )
            assert agent.post(operation("insert", "c")) == 204
            topic.publish(operation("delete", "c"))
            events = ops.take(5)
            assert [(event.event, event.operation["id"]) for event in events] == [
                ("insert", "a"), ("insert", "b"), ("update", "a"), ("insert", "c"), ("delete", "c"),
            ]  # fmt: skip
            assert elsewhere.take(5) == stream.take(5) == events
        assert list(agent.replicate()) == ["thing/b", "thing/a"]
        answer = topic.try_publish([operation("insert", "d"), {"event": "insert"}])
        assert answer.status == 400
        assert "messages[1]" in answer.json["detail"]
        assert "d" not in [event.operation["id"] for event in other.replicate().values()]


def test_operations_polled_from_system_oplog_can_be_published_again(
    place: StorePlace, tmp_path: Path
) -> None:
    with place.agent(tmp_path) as agent:
        topic = Topic(agent, OPLOG)
        with ByteStream(agent) as ops:
            topic.publish(*(operation("insert", id_) for id_ in numbered(8)))
            events = ops.take(8)
            polled = topic.poll_all()
            assert [message.id for message in polled] == [event.id for event in events]
            for message, event in zip(polled, events, strict=True):
                content = json.loads(message.payload)
                assert next(iter(content)) == "event"
                assert content == {"event": "insert", **event.operation}
            assert topic.poll(events[3].id, inclusive=False, limit=2) == polled[4:6]
            assert topic.poll(events[3].id, limit=2) == polled[3:5]
            assert ok(topic.try_poll(events[0].id)).headers.get("oplog-gap") is None
            topic.publish(*(message.payload for message in polled))
            again = ops.take(8)
        assert [(event.event, event.data) for event in again] == [
            (event.event, event.data) for event in events
        ]
        assert topic.poll(events[-1].id, inclusive=False) == topic.poll_all()[8:]
        assert len(agent.replicate()) == 8
