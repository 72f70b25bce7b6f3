"""The columns of a topic."""

from datetime import UTC, datetime
from typing import Any

import pytest

from oplog_sync.errors import OptionError, SyncError
from oplog_sync.topics.columns import TopicColumns, topic_schema
from oplog_sync.topics.place import TopicMessage
from oplog_sync.topics.position import TopicOptions
from oplogd.model.message import Content
from oplogd.model.message_id import MessageId, record_id, stored_id
from oplogd.model.names import TopicName
from tests.unit.sync.schemas import schema

MS = 1_700_000_000_041
PLAIN = TopicMessage(str(MessageId(MS, 1)), Content("text", "k", [("a", "1"), ("a", "2")]))
RECORD = TopicMessage(str(record_id(MS, 2, 7, is_last=True)), Content(None), "4611686018427387904")
BYTES = TopicMessage(
    str(stored_id(MS, 3, MS << 16, is_last=False)), Content("/w==", encoding="base64")
)


def options(**given: Any) -> TopicOptions:
    return TopicOptions(name=TopicName("shop", "orders"), **given)


def rows(*messages: TopicMessage, columns: str = "", **given: Any) -> list[dict[str, Any]]:
    made = schema(columns) if columns else topic_schema(options(**given).is_binary)
    found: list[dict[str, Any]] = TopicColumns(made, options(**given)).batch(messages).to_pylist()
    return found


def test_a_message_has_its_columns() -> None:
    plain, record, stored = rows(PLAIN, RECORD, BYTES, is_binary=True)
    time = datetime(2023, 11, 14, 22, 13, 20, 41_000, UTC)
    common = {"time": time, "topic": "shop/orders"}
    assert plain == common | {
        "id": PLAIN.id,
        "key": "k",
        "payload": b"text",
        "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}],
        "txn": None,
        "lsn": None,
    }
    nothing = {"key": None, "headers": None}
    assert record == common | nothing | {
        "id": RECORD.id,
        "payload": None,
        "txn": RECORD.txn,
        "lsn": 7,
    }
    assert stored == common | nothing | {
        "id": BYTES.id,
        "payload": b"\xff",
        "txn": None,
        "lsn": None,
    }


def test_columns_on_request_are_those_of_an_object() -> None:
    gone = PLAIN._replace(content=Content(None, "k"))
    assert rows(
        PLAIN, RECORD, BYTES, gone, columns="event string, version bigint, data string"
    ) == [
        {
            "event": "insert",
            "version": (MS << 20) + (1 << 4),
            "data": f'{{"id":"{PLAIN.id}","payload":"text","key":"k",'
            '"headers":[["a","1"],["a","2"]]}',
        },
        {
            "event": "insert",
            "version": (MS << 20) + (2 << 4),
            "data": f'{{"id":"{RECORD.id}","payload":null}}',
        },
        {
            "event": "insert",
            "version": (MS << 20) + (3 << 4),
            "data": f'{{"id":"{BYTES.id}","payload":"/w==","encoding":"base64"}}',
        },
        {
            "event": "delete",
            "version": (MS << 20) + (1 << 4),
            "data": f'{{"id":"{gone.id}","payload":null,"key":"k"}}',
        },
    ]
    largest = TopicMessage(str(MessageId(MS, 0xFFFF)), None)
    following = TopicMessage(str(MessageId(MS + 1, 0)), None)
    (last,), (first,) = (rows(each, columns="version bigint") for each in (largest, following))
    assert last["version"] < first["version"] == (MS + 1) << 20


def test_a_payload_that_is_no_text_names_the_option() -> None:
    assert rows(PLAIN, RECORD, columns="payload string") == [{"payload": "text"}, {"payload": None}]
    with pytest.raises(SyncError, match=f"payload of message {BYTES.id} is not UTF-8; .* binary"):
        rows(PLAIN, BYTES)
    assert rows(BYTES, columns="key string") == [{"key": None}]


def test_contents_are_wanted_only_for_columns_that_need_them() -> None:
    without = PLAIN._replace(content=None)
    columns = "lsn bigint, id string, time timestamp"
    made = TopicColumns(schema(columns), options())
    assert not made.decodes
    assert made.batch([without]).schema.names == ["lsn", "id", "time"]
    assert TopicColumns(schema("id string, key string"), options()).decodes


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("value string", "schema: there is no column value; the columns of a topic are id, key"),
        ("payload binary", "schema: the column payload is of type string"),
        ("headers map", "schema: the column headers is of type array<struct<key"),
    ],
)
def test_other_columns_and_types_are_refused(columns: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        rows(columns=columns)
