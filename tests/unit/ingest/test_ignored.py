"""Unknown members of operations: their names, and the lines of their senders."""

import pytest

from oplogd.decode.media_types import NDJSON
from oplogd.decode.pieces import at_once
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.ignored import MAX_LOOKS, MAX_NAMES, QUIET_SECONDS, Ignored, IgnoredMembers
from oplogd.ingest.operations import decoding
from oplogd.model.operation import decode, unknown_members
from tests.kits.clock.virtual import VirtualClock

ARRIVAL = "2026-01-02T03:04:05.006Z"
PLAIN = b'{"event":"insert","type":"video","id":"a"'


def given(members: bytes = b"") -> bytes:
    return PLAIN + (b"," + members if members else b"") + b"}"


def test_an_operation_is_the_same_with_and_without_unknown_members() -> None:
    told: list[bytes] = []
    plain = decode(given(), ARRIVAL, told.append)
    assert told == []
    raw = given(b'"data":{"event":"delete"},"size":1')
    assert decode(raw, ARRIVAL, told.append) == decode(raw, ARRIVAL) == plain
    assert told == [raw]
    assert unknown_members(raw) == ["data", "size"]


def test_names_are_told_once_and_in_their_order() -> None:
    ignored = Ignored()
    for members in (b'"size":1,"a b":2', b'"size":1,"data":3,"\\u00e9":4', b'"d\\u0061ta":1'):
        ignored.add(given(members))
    assert list(ignored.names) == ["size", "?", "data"]
    assert ignored.operations == 3


def test_the_names_of_many_members_are_bounded() -> None:
    ignored = Ignored()
    for number in range(3 * MAX_NAMES):
        ignored.add(given(b'"n%d":0' % number))
    assert list(ignored.names) == [f"n{number}" for number in range(MAX_NAMES)]
    assert ignored.operations == 3 * MAX_NAMES


@pytest.mark.parametrize("name", [b"a b", b"data"])
def test_the_operations_that_are_looked_at_are_bounded_whatever_their_names(
    name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[bytes] = []

    def counted(raw: bytes) -> list[str]:
        looked_at.append(raw)
        return unknown_members(raw)

    monkeypatch.setattr("oplogd.ingest.ignored.unknown_members", counted)
    ignored = Ignored()
    body = b"\n".join([given(b'"%b":0' % name)] * (3 * MAX_LOOKS))
    at_once(decoding(body, NDJSON, ARRIVAL, 10_000, ignored.add))
    assert ignored.operations == 3 * MAX_LOOKS
    assert list(ignored.names) == ["?" if b" " in name else "data"]
    assert len(looked_at) == MAX_LOOKS


def test_the_members_that_are_looked_at_are_bounded() -> None:
    ignored = Ignored()
    for names in (["a b"], [f"{number} " for number in range(MAX_LOOKS - 2)], ["x", "y"], ["z"]):
        ignored.add(given(b",".join(b'"%b":0' % name.encode() for name in names)))
    assert (list(ignored.names), ignored.operations) == (["?", "x"], 4)


def test_a_sender_has_one_line_per_episode_whatever_it_sends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, counters = VirtualClock(), IngestCounters()
    ignored = IgnoredMembers(counters, clock.clock)

    def send(address: str, name: bytes, times: int = 1) -> None:
        found = Ignored()
        for _ in range(times):
            found.add(given(b'"%b":0' % name))
        ignored.by_sender({address: found})

    send("192.0.2.1", b"data", 3)
    send("192.0.2.1", b"size")
    send("192.0.2.2", b"size")
    clock.move(QUIET_SECONDS)
    ignored.by_sender({})
    send("192.0.2.1", b"size")
    problem = "ignoring unknown members of operations from"
    assert caplog.messages == [
        f"{problem} 192.0.2.1: data",
        f"{problem} 192.0.2.2: size",
        f"{problem} 192.0.2.1: over, 4 times in 0.0 s",
        f"{problem} 192.0.2.2: over, 1 time in 0.0 s",
        f"{problem} 192.0.2.1: size",
    ]
    assert counters.ignoring == 6
