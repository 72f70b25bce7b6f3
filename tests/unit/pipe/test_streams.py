"""What a source reads from the blocks of the streams."""

import pytest

from oplog_pipe.follow.streams import (
    Change,
    Item,
    consumer_name,
    is_replicated,
    oplog_endpoints,
    oplog_format,
    topic_endpoints,
    topic_format,
)
from oplogc.wire.errors import ProtocolError
from oplogc.wire.events import Checkpoint
from oplogc.wire.sse import Block

OPLOG_ID = "545b55c7f095528dd0f3863c"
MESSAGE_ID = f"{1_415_271_879_041:016x}" + "0" * 24


def of_oplog(id_: str, event: str, data: str = "") -> Item | None:
    return oplog_format().read(Block(id_, event, data), 1)


def of_topic(data: str, event: str = "message", id_: str = MESSAGE_ID) -> Item | None:
    return topic_format("t").read(Block(id_, event, data), 1)


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        ("2014-11-06T11:04:39.041Z", 1_415_271_879_041),
        ("1970-01-01T00:00:00.000Z", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00.000Z", -62_135_596_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("2014-11-06T12:04:39.041+01:00", 1_415_271_879_041),
    ],
)
def test_an_operation_keeps_its_bytes_and_has_its_time_in_ms(time: str, ms: int) -> None:
    data = f'{{"timestamp":"{time}","parents":["é"],"type":"vidéo","id":"ü\\u2028","ref":"x"}}'
    assert of_oplog(OPLOG_ID, "update", data) == Change(
        OPLOG_ID, 1, "update", "vidéo", "ü\u2028", ms, data.encode()
    )


def test_reset_live_and_positions_are_read() -> None:
    assert of_oplog("1", "reset") == Change("1", 1, "reset")
    assert of_oplog(OPLOG_ID, "live") == Change(OPLOG_ID, 1, "live")
    assert of_oplog(OPLOG_ID, "") == Checkpoint(OPLOG_ID, 1)
    assert of_oplog(OPLOG_ID, "unknown", "x") == Checkpoint(OPLOG_ID, 1)
    assert oplog_format().read(Block("", "unknown", "x", False), 1) is None
    assert of_topic("", "reset", "0") == Change("0", 1, "reset")
    assert of_topic("", "") == Checkpoint(MESSAGE_ID, 1)
    assert topic_format("t").read(Block("", "unknown", "x", False), 1) is None


@pytest.mark.parametrize(
    ("data", "op", "id_", "shown"),
    [
        ('{"payload":"a"}', "insert", MESSAGE_ID, '"payload":"a"}'),
        ('{"payload":"a","key":"k"}', "insert", "k", '"payload":"a","key":"k"}'),
        ('{"payload":null,"key":""}', "delete", "", '"payload":null,"key":""}'),
        ('{"payload":null}', "insert", MESSAGE_ID, '"payload":null}'),
        (
            '{"payload":"/w==","encoding":"base64"}',
            "insert",
            MESSAGE_ID,
            '"payload":"/w==","encoding":"base64"}',
        ),
    ],
)
def test_a_message_becomes_what_a_poll_shows(data: str, op: str, id_: str, shown: str) -> None:
    found = of_topic(data)
    assert isinstance(found, Change)
    assert (found.op, found.namespace, found.id) == (op, "default/t", id_)
    assert found.timestamp == 1_415_271_879_041
    assert found.data.decode() == f'{{"id":"{MESSAGE_ID}",{shown}'


@pytest.mark.parametrize("data", ["{}", "[]", "1", "", '{"payload":"a"', '{"payload":"a","key":1}'])
def test_a_message_that_cannot_be_read_is_an_error(data: str) -> None:
    if data:
        with pytest.raises(ProtocolError, match="cannot be read"):
            of_topic(data)
    with pytest.raises(ProtocolError, match="cannot be read"):
        of_oplog(OPLOG_ID, "insert", data)


def test_ids_of_the_other_kind_of_stream_are_refused() -> None:
    with pytest.raises(ProtocolError, match="no position"):
        of_oplog(MESSAGE_ID, "live")
    with pytest.raises(ProtocolError, match="no position"):
        of_topic("{}", id_=OPLOG_ID)


def test_times_of_states_are_told_from_places_in_the_log() -> None:
    assert [is_replicated(each) for each in ("0", "1", "1415271879041", OPLOG_ID)] == [
        True,
        True,
        True,
        False,
    ]


def test_addresses_ask_for_checkpoints_and_hide_the_password() -> None:
    (one,) = oplog_endpoints(["http://me:pw@host/base/"], None)
    assert str(one.url) == "http://host/base/ops?checkpoint=1"
    assert one.auth is not None
    (two,) = topic_endpoints(["http://host:1"], None, "ns/t", "read_committed")
    assert str(two.url) == (
        "http://host:1/v1/namespaces/ns/topics/t/stream?checkpoint=1&isolation=read_committed"
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("orders", "oplog-pipe.orders"),
        ("system/oplog", "oplog-pipe.system.oplog"),
        (f"{'n' * 249}/t", f"oplog-pipe.{'n' * 89}"),
    ],
)
def test_a_source_gives_a_name_that_an_agent_takes(source: str, name: str) -> None:
    assert consumer_name(source) == name
    (one,) = oplog_endpoints(["http://host:1"], None, name)
    (two,) = topic_endpoints(["http://host:1"], None, "ns/t", "read_committed", name)
    assert [each.url.params["name"] for each in (one, two)] == [name, name]
