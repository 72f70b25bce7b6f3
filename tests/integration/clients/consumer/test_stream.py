"""A consumer reads the bytes of a stream."""

from pathlib import Path

import pytest

from oplogc import Consumer, Live, Operation, ProtocolError, Reset
from tests.kits.clients.streams import FAST, HEAD, IDS, Streams, chunked, keys, operation, take


async def test_a_block_cut_anywhere_in_two_chunks_is_one_event() -> None:
    block = operation("é")
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for k in range(1, len(block)):
        with Streams([chunked(block[:k]), chunked(block[k:])], head=head) as server:
            async with Consumer(server.url) as consumer:
                assert keys(await take(consumer, 1)) == ["video/é"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_any_end_of_a_line_byte_by_byte_behind_a_byte_order_mark(end: bytes) -> None:
    raw = b"\xef\xbb\xbf" + b"".join(
        operation(name, number=number) for number, name in enumerate("ab")
    )
    raw = raw.replace(b"\n", end)
    with Streams([bytes([byte]) for byte in raw]) as server:
        async with Consumer(server.url) as consumer:
            assert keys(await take(consumer, 2)) == ["video/a", "video/b"]


async def test_fields_are_read_as_the_standard_says() -> None:
    data = (
        b'data:{"timestamp":"2014-11-06T11:04:39.041Z",\n'
        b'data: "parents":[],"type":"video","id":"a"}\n\n'
    )
    raw = (
        b": comment\nid:7\nevent:insert\nretry: 5\nnew\nother: x\n:\n"
        + data
        + b"id: 8\nevent: live\ndata\n\n"
    )
    with Streams(raw) as server:
        async with Consumer(server.url) as consumer:
            assert [(event.event, event.event_id) for event in await take(consumer, 2)] == [
                ("insert", "7"),
                ("live", "8"),
            ]


async def test_unknown_events_move_the_position_and_are_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = (
        b"event: of another age\ndata: ?\n\ndata: ?\n\nid: 6\nevent: new\n\n"
        b"id: 7\ndata: ?\nretry: 1\n\nevent: new\n\n"
    )
    with Streams(b"id: 5\nevent: live\n\n" + unknown, b"id: 9\nevent: live\n\n") as server:
        async with Consumer(server.url, backoff=FAST) as consumer:
            assert await take(consumer, 2) == [Live("5"), Live("9")]
        assert server.last_ids() == ["7"]
    assert [
        record.getMessage() for record in caplog.records if "does not know" in record.getMessage()
    ] == ["the stream has events that this client does not know, such as 'of another age'"]


async def test_an_event_without_an_id_has_the_last_one_received() -> None:
    without = operation("b").partition(b"\n")[2]
    with Streams(
        operation("a", number=3) + without + b"event: live\n\n", b"event: reset\n\n"
    ) as server:
        async with Consumer(server.url, backoff=FAST, start="5") as consumer:
            events = await take(consumer, 4)
            assert keys(events) == ["video/a", "video/b", "live", "reset"]
            assert {event.event_id for event in events} == {IDS[3]}
        assert server.last_ids() == ["5", IDS[3]]


@pytest.mark.parametrize(
    "bad",
    [
        b"id: x\nevent: live\n\n",
        b"id: 9\nevent: insert\ndata: {\n\n",
        b"id: 9\nevent: insert\ndata: {}\n\n",
        operation("b", number=2).replace(b'["\xc3\xa9"]', b'"e"'),
        b"id: 9\nevent: live\ndata: \xff\n\n",
        b"id: 9\nevent: insert\ndata: " + b"x" * 1_100_000 + b"\n\n",
        b"id: 9\ndata: " + b"x" * 1_100_000,
        b"id:\nevent: live\n\n",
        b"id: 9\nevent: insert\ndata: " + b"[" * 100_000 + b"\n\n",
    ],
)
async def test_a_broken_block_ends_a_consumer_behind_the_events_before_it(
    tmp_path: Path, bad: bytes
) -> None:
    state = tmp_path / "state"
    with Streams(operation("a", number=1) + bad + operation("c", number=3)) as server:
        async with Consumer(server.url, state_file=state) as consumer:
            (event,) = await take(consumer, 1)
            assert keys([event]) == ["video/a"]
            consumer.ack(event)
            with pytest.raises(ProtocolError):
                await take(consumer, 1)
    assert state.read_text() == IDS[1]


async def test_a_block_cut_off_by_the_end_is_no_event() -> None:
    with Streams(
        operation("a") + operation("b", number=1)[:-1], operation("c", number=2)
    ) as server:
        async with Consumer(server.url, backoff=FAST) as consumer:
            assert keys(await take(consumer, 2)) == ["video/a", "video/c"]
        assert server.last_ids() == [IDS[0]]


async def test_types_that_are_called_as_the_two_events_are_operations() -> None:
    with Streams(
        operation("a", "live") + operation("b", "reset") + b"id: 5\nevent: reset\n\n"
    ) as server:
        async with Consumer(server.url) as consumer:
            events = await take(consumer, 3)
    assert keys(events) == ["live/a", "reset/b", "reset"]
    assert [type(event) for event in events] == [Operation, Operation, Reset]


async def test_names_of_types_are_lower_case_in_the_filter() -> None:
    with Streams(b"id: 5\nevent: live\n\n") as server:
        async with Consumer(server.url, types=["Video", "ÉTÉ"], parents=["User/A"]) as consumer:
            await take(consumer, 1)
        assert "types=video%2C%C3%A9t%C3%A9&parents=User%2FA" in server.heads[0]
