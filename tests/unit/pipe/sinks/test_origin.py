"""The header with the origin of a message, and operations that come again and again."""

import msgspec
import pytest

from oplog_pipe.message import Message
from oplog_pipe.sinks.oplog import payload
from oplog_pipe.sinks.parts.origin import HEADER, Circles, Origin, origins

ID = "0" * 40


def of_topic(**members: object) -> Message:
    raw = msgspec.json.encode({"id": ID, "payload": "p", **members})
    return Message(
        "insert", 1, "shop/orders", raw, id="k", offset=1, version=1, source="shop/orders"
    )


def operation(offset: int, id: str = "a", timestamp: int = 1) -> Message:
    return Message(
        "update", timestamp, "video", b"{}", id=id, offset=offset, version=offset, source="s"
    )


def test_a_message_gets_a_header_for_each_hop_behind_its_own() -> None:
    first = msgspec.json.decode(payload(of_topic(headers=[["a", "b"]], key="k"), "hop/1"))
    assert first == {
        "payload": "p",
        "key": "k",
        "headers": [["a", "b"], [HEADER, f"hop/1 shop/orders {ID}"]],
    }
    second = msgspec.json.decode(payload(of_topic(headers=first["headers"]), "hop/2"))
    assert origins(second) == [
        Origin("hop/1", "shop/orders", ID), Origin("hop/2", "shop/orders", ID),
    ]  # fmt: skip


def test_a_message_that_is_nearly_too_large_gets_no_header() -> None:
    assert b"headers" not in payload(of_topic(payload="x" * 1_000_000), "hop/1")
    assert b"headers" not in payload(of_topic())


@pytest.mark.parametrize(
    "headers",
    [None, 5, "x", [5], [[]], [[HEADER]], [[HEADER, 5]], [[HEADER, "a b"]], [["x", "a b c"]]],
)
def test_headers_of_others_are_no_origin(headers: object) -> None:
    assert origins({"headers": headers}) == []


def test_an_operation_that_comes_again_and_again_is_told_at_powers_of_ten() -> None:
    now = [0.0]
    circles = Circles(lambda: now[0])
    told = []
    for n in range(1000):
        now[0] = float(n)
        if sentence := circles.see([operation(2 * n), operation(2 * n + 1, f"other-{n}")]):
            told.append((n + 1, sentence))
    assert [n for n, _ in told] == [10, 100, 1000]
    assert "the same operation, update video 'a', came 100 times within 99 s" in told[1][1]


def test_repeated_writes_other_times_and_slow_repetitions_are_no_circle() -> None:
    now = [0.0]
    circles = Circles(lambda: now[0])
    for _ in range(100):
        assert circles.see([operation(1)]) is None  # the write is repeated
    for n in range(100):
        assert circles.see([operation(2 + n, timestamp=n)]) is None
    for n in range(100):
        now[0] += 500.0
        assert circles.see([operation(200 + n, "slow")]) is None


def test_an_object_that_changes_often_within_a_millisecond_is_no_circle() -> None:
    circles = Circles(lambda: 0.0)
    told = [circles.see([operation(100 * n + each) for each in range(100)]) for n in range(9)]
    assert told == [None] * 9
    assert circles.see([operation(900 + each) for each in range(100)]) is not None


def test_few_operations_are_watched_and_others_take_their_place_after_an_hour() -> None:
    now = [0.0]
    circles = Circles(lambda: now[0])
    circles.see([operation(n, f"{n}") for n in range(1000)])
    assert not any(circles.see([operation(1000 + n, "new")]) for n in range(100))
    now[0] = 4000.0
    assert any(circles.see([operation(2000 + n, "new")]) for n in range(10))
