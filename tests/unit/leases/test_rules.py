"""The header of a fence and the bodies of polls and releases: each accepted and refused form."""

import json
from typing import Any

import pytest

from oplogd.errors import LeaseError, MessageError, TopicError
from oplogd.leases.rules import LeaseReleaseBody, parse_poll, parse_release
from oplogd.model.lease import MAX_TERM, Fence, parse_fence, stale
from oplogd.store.leases import LeaseRequest

POLL = {"holder": "h", "ttl_ms": 100}
RELEASE = {"holder": "h", "term": 1}


def poll(**changes: Any) -> bytes:
    """Return the body of a valid poll with the changes; ``...`` leaves a member out."""
    return body({**POLL, **changes})


def body(members: dict[str, Any]) -> bytes:
    return json.dumps({name: value for name, value in members.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("raw", "request_"),
    [
        (poll(), LeaseRequest("l", "h", 100)),
        (b" \n" + poll(ttl_ms=3_600_000) + b"\n", LeaseRequest("l", "h", 3_600_000)),
        (poll(refresh=False, note=None), LeaseRequest("l", "h", 100)),
        (poll(refresh=True, note=""), LeaseRequest("l", "h", 100, True, "")),
        (poll(holder="é" * 127 + "x"), LeaseRequest("l", "é" * 127 + "x", 100)),
        (poll(note="\0\n😀" + "x" * 8186), LeaseRequest("l", "h", 100, note="\0\n😀" + "x" * 8186)),
    ],
)
def test_a_poll_is_read(raw: bytes, request_: LeaseRequest) -> None:
    given = parse_poll(raw)
    found = LeaseRequest("l", given.holder, given.ttl_ms, given.refresh, given.note)
    assert found == request_


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "ttl_ms"),
        (b"[]", "body"),
        (b"{", "body"),
        (b"\xff", "body"),
        (poll(term=1), "term"),
        (poll(Holder="h"), "Holder"),
        (poll(holder=...), "holder"),
        (poll(holder=None), "holder"),
        (poll(holder=7), "holder"),
        (poll(holder=""), "holder"),
        (poll(holder="é" * 128), "holder"),
        (poll(holder="a\nb"), "holder"),
        (poll(holder="a\x7f"), "holder"),
        (poll(holder="\x85"), "holder"),
        (poll(holder="\ud800"), "body"),
        (poll(ttl_ms=...), "ttl_ms"),
        (poll(ttl_ms=None), "ttl_ms"),
        (poll(ttl_ms=99), "ttl_ms"),
        (poll(ttl_ms=3_600_001), "ttl_ms"),
        (poll(ttl_ms=100.0), "ttl_ms"),
        (poll(ttl_ms="100"), "ttl_ms"),
        (poll(ttl_ms=True), "ttl_ms"),
        (poll(ttl_ms=10**30), "ttl_ms"),
        (poll(refresh=None), "refresh"),
        (poll(refresh=1), "refresh"),
        (poll(note=7), "note"),
        (poll(note="x" * 8193), "note"),
        (poll(note="é" * 4097), "note"),
        (poll(note="\udc00"), "body"),
    ],
)
def test_a_bad_poll_names_its_member(raw: bytes, field: str) -> None:
    with pytest.raises((LeaseError, MessageError)) as refused:
        parse_poll(raw)
    assert str(refused.value).startswith(f"{field}: ")


@pytest.mark.parametrize("term", [1, 7, MAX_TERM])
def test_a_release_is_read(term: int) -> None:
    assert parse_release(body({**RELEASE, "term": term})) == LeaseReleaseBody(term, "h")


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "term"),
        (body({**RELEASE, "term": ...}), "term"),
        (body({**RELEASE, "term": 0}), "term"),
        (body({**RELEASE, "term": MAX_TERM + 1}), "term"),
        (body({**RELEASE, "term": "1"}), "term"),
        (body({**RELEASE, "term": True}), "term"),
        (body({**RELEASE, "holder": ...}), "holder"),
        (body({**RELEASE, "holder": "a\tb"}), "holder"),
        (body({**RELEASE, "ttl_ms": 100}), "ttl_ms"),
    ],
)
def test_a_bad_release_names_its_member(raw: bytes, field: str) -> None:
    with pytest.raises((LeaseError, MessageError)) as refused:
        parse_release(raw)
    assert str(refused.value).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("header", "fence"),
    [
        ("orders; term=7", Fence("orders", 7)),
        ("orders;term=7", Fence("orders", 7)),
        (" a.b_C-9 ;  term = 7 ", Fence("a.b_C-9", 7)),
        (f"orders; term={MAX_TERM}", Fence("orders", MAX_TERM)),
        ("orders; term=007", Fence("orders", 7)),
    ],
)
def test_a_fence_is_read(header: str, fence: Fence) -> None:
    assert parse_fence(header) == fence


@pytest.mark.parametrize(
    "header",
    [
        "",
        "orders",
        "orders; term",
        "orders; term=",
        "orders; term=0",
        "orders; term=-1",
        "orders; term=1.0",
        "orders; term=x",
        "orders; term=\u0667",
        "orders\x85; term=1",
        "orders;\xa0term=1",
        f"orders; term={MAX_TERM + 1}",
        "orders; term=1; term=2",
        "orders; term=1, other; term=2",
        "orders, term=1",
        "orders; Term=1",
        "; term=1",
        "a b; term=1",
        "a/b; term=1",
        "..; term=1",
    ],
)
def test_a_bad_fence_names_the_header(header: str) -> None:
    with pytest.raises((LeaseError, TopicError)) as refused:
        parse_fence(header)
    assert str(refused.value).startswith("Oplog-Lease: ")


def test_a_stale_fence_names_lease_and_term() -> None:
    assert stale(Fence("orders", 7)) == "term 7 of the lease orders is over; nothing was stored"
