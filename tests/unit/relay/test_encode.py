"""Rows as the body of a publish."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from oplog_relay.agent.encode import EncodeError, encode, topic_of
from oplog_relay.model.row import Row
from oplogc.topics import TopicName

NOON = datetime(2026, 1, 31, 13, 0, 0, 123_999, timezone(timedelta(hours=1)))
ROW = Row(7, NOON, "t", "type/id/rest", "value")
TOPIC = TopicName("default", "t")
OPLOG = TopicName("system", "oplog")


def messages(topic: TopicName, *rows: Row) -> Any:
    body = json.loads(encode(topic, rows))
    assert list(body) == ["messages"]
    return body["messages"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("oplog", OPLOG),
        ("system/oplog", OPLOG),
        ("orders", TopicName("default", "orders")),
        ("sales/oplog", TopicName("sales", "oplog")),
        ("a" * 249, TopicName("default", "a" * 249)),
    ],
)
def test_a_bare_topic_is_in_the_namespace_default_but_for_the_oplog(
    text: str, name: TopicName
) -> None:
    assert topic_of(text) == name


@pytest.mark.parametrize(
    "text", ["", "a b", "a/b/c", "/a", "a/", "..", "ä", "a" * 250, "a" * 10_000, "a\n"]
)
def test_a_topic_that_no_agent_can_have_is_refused(text: str) -> None:
    with pytest.raises(EncodeError, match=r"^topic: .{1,300} is not a topic"):
        topic_of(text)


def test_a_row_becomes_a_message_with_its_id_behind_its_headers() -> None:
    rows = (
        ROW,
        ROW._replace(id=8, value=None),
        ROW._replace(id=9, value="", key="", headers=(("b", "ä"), ("a", ""), ("b", '"'))),
        ROW._replace(id=2**63 - 1, headers=(("outbox-id", "own"),)),
    )
    assert messages(TOPIC, *rows) == [
        {"payload": "value", "key": "type/id/rest", "headers": [["outbox-id", "7"]]},
        {"payload": None, "key": "type/id/rest", "headers": [["outbox-id", "8"]]},
        {
            "payload": "",
            "key": "",
            "headers": [["b", "ä"], ["a", ""], ["b", '"'], ["outbox-id", "9"]],
        },
        {
            "payload": "value",
            "key": "type/id/rest",
            "headers": [["outbox-id", "own"], ["outbox-id", "9223372036854775807"]],
        },
    ]


def test_the_value_of_an_operation_is_text_that_cannot_add_another_one() -> None:
    value = '{"event":"insert","type":"a","id":"b"},{"event":"delete","type":"a","id":"b"}'
    row = ROW._replace(value=value, headers=(("a", "b"),))
    assert messages(OPLOG, row) == [value]


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (NOON, "2026-01-31T12:00:00.123+00:00"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000+00:00"),
    ],
)
def test_a_null_value_in_the_oplog_deletes_the_object_of_the_key(time: datetime, text: str) -> None:
    (operation,) = messages(OPLOG, ROW._replace(value=None, create_time=time))
    assert json.loads(operation) == {
        "event": "delete",
        "type": "type",
        "id": "id/rest",
        "timestamp": text,
    }


@pytest.mark.parametrize(
    ("topic", "changes", "reason"),
    [
        (TOPIC, {"fault": "header_keys: are no list"}, "header_keys: are no list"),
        (OPLOG, {"fault": "header_keys: are no list"}, "header_keys: are no list"),
        (TOPIC, {"value": "\ud800"}, "the text has an unpaired surrogate"),
        (TOPIC, {"key": "\ud800"}, "the text has an unpaired surrogate"),
        (OPLOG, {"value": "\ud800"}, "the text has an unpaired surrogate"),
        (OPLOG, {"value": None, "key": "a"}, "key: must be type/id if the value is null"),
        (OPLOG, {"value": None, "create_time": None}, "create_time: is null"),
        (OPLOG, {"value": None, "create_time": datetime(2026, 1, 1)}, "create_time: has no time z"),
        (
            OPLOG,
            {"value": None, "create_time": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))},
            "create_time: is out of range",
        ),
    ],
)
def test_a_row_that_can_never_be_sent_is_refused(
    topic: TopicName, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EncodeError, match=reason):
        encode(topic, [ROW, ROW._replace(**changes)])
