"""Clients of the first server can read a stream that uses no new options."""

import pytest

from tests.contract.wire.old_client import BrokenStreamError, OldEvent, read
from tests.contract.wire.operations import ACCEPTED
from tests.contract.wire.store_kinds import on_one_store
from tests.kits.contract.wire import RawStream, Target, frame, fresh_type, id_of, operation

DATA = '{"timestamp":"2014-11-06T11:04:39.041Z","parents":[],"type":"video","id":"a"}'


@pytest.mark.parametrize(
    "block",
    [
        frame("1", "insert", DATA).replace(b"\n", b"\r\n"),
        b"id: 1\n\n",
        b"id: 1\ndata:\n\n",
        b"retry: 100\n\n",
        b"retry: 100\nid: 1\nevent: live\ndata:\n\n",
        b"event: live\nid: 1\ndata:\n\n",
        b"id: 1\nevent: live\n\n",
        b"id: 1\nevent: live\ndata:\ndata:\n\n",
        b"id: 1\nevent: live\ndata:\n\n\n",
        b"id: x\nevent: live\ndata:\n\n",
        b"id: 1\nevent: checkpoint\ndata:\n\n",
        frame("1", "insert", DATA.replace('"parents":[],', "")),
    ],
)
def test_the_double_rejects_a_stream_that_an_old_client_cannot_read(block: bytes) -> None:
    with pytest.raises(BrokenStreamError):
        list(read(block))


def test_the_double_reads_the_examples_of_the_contract() -> None:
    data = '{"timestamp":"2014-11-06T11:04:39.041Z","parents":["x3kd2"],"type":"video","id":"xekw","ref":"http://a.b/c"}'
    stream = b":\nid: 1\nevent: reset\ndata:\n\n:\n" + frame(
        "545b55c7f095528dd0f3863c", "insert", data
    )
    reset, insert = read(stream)
    assert reset == OldEvent("1", "reset", None)
    assert (insert.id, insert.event) == ("545b55c7f095528dd0f3863c", "insert")
    assert insert.operation
    assert insert.operation["ref"] == "http://a.b/c"


def sent(stream: RawStream) -> list[tuple[str, str]]:
    return [
        (event.event, event.operation["id"] if event.operation else "")
        for event in read(bytes(stream.received))
    ]


@on_one_store
def test_an_old_client_reads_live_operations_and_heartbeats(target: Target) -> None:
    with target.follow() as stream:
        stream.next_heartbeat()
        for row in ACCEPTED:
            assert target.post(row.raw).status == 204
        stream.take(len(ACCEPTED))
        stream.next_heartbeat()
        events = list(read(bytes(stream.received)))
    assert stream.heartbeats >= 2
    assert [event.event for event in events] == [row.event for row in ACCEPTED]


def test_an_old_client_resumes_and_replicates(target: Target) -> None:
    type_ = fresh_type()
    with target.follow(types=type_) as stream:
        target.store(
            operation("insert", "a", type_),
            operation("update", "a", type_),
            operation("delete", "b", type_),
        )
        first, *_ = stream.take(3)
    with target.follow(id_of(first), types=type_) as stream:
        stream.take(2)
        assert sent(stream) == [("update", "a"), ("delete", "b")]
    with target.follow("1", types=type_) as stream:
        stream.until("live")
        assert sent(stream) == [("insert", "a"), ("delete", "b"), ("live", "")]
    with target.follow("0", types=type_) as stream:
        stream.until("live")
        target.store(operation("update", "c", type_))
        stream.take(1)
        assert sent(stream) == [("reset", ""), ("insert", "a"), ("live", ""), ("update", "c")]


def test_an_old_client_replicates_all_objects(target: Target) -> None:
    target.store(operation("insert", "a", fresh_type()))
    with target.follow("0") as stream:
        blocks = stream.until("live")
        assert len(list(read(bytes(stream.received)))) == len(blocks)


@on_one_store
def test_an_old_client_cannot_read_checkpoints(
    target: Target,
) -> None:
    with target.follow(checkpoint="1") as stream:
        stream.take(1)
        with pytest.raises(BrokenStreamError):
            sent(stream)
