"""Requests for the stream: accepted and refused ones, and the headers of the answers."""

import re

import pytest

from tests.contract.wire.store_kinds import on_one_store
from tests.kits.contract.wire import (
    RESET,
    SSE,
    Headers,
    RawStream,
    Target,
    operation,
    said,
    wait_until,
)


@on_one_store
@pytest.mark.parametrize("path", ["/", "/ops"])
@pytest.mark.parametrize(
    "accept",
    [
        ["text/event-stream"],
        ["Text/Event-Stream"],
        ["text/event-stream;charset=utf-8"],
        ["text/event-stream;q=0.1"],
        ["text/html, application/json;q=0.9, text/event-stream ; q=0.5"],
        ["text/html", "text/event-stream"],
        ["*/*;q=0, text/event-stream"],
    ],
)
def test_an_accept_that_names_the_event_stream_gets_it(
    target: Target, path: str, accept: list[str]
) -> None:
    with RawStream(target, path, [("Accept", value) for value in accept]) as stream:
        assert stream.header("Content-Type") == "text/event-stream; charset=utf-8"
        target.store(operation("insert", "a", "thing"))
        assert said(stream.block()) == ("insert", "a")


@on_one_store
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/ops"])
@pytest.mark.parametrize(
    "accept",
    [
        [],
        [""],
        ["*/*"],
        ["text/*"],
        ["application/json"],
        ["text/event-stream;q=0"],
        ["text/event-stream; q=0.0, */*"],
        ["text/event-streams"],
        ["application/text/event-stream"],
    ],
    ids=str,
)
def test_any_other_accept_is_answered_with_the_right_one(
    target: Target, method: str, path: str, accept: list[str]
) -> None:
    reply = target.request(method, path, headers=[("Accept", value) for value in accept])
    assert reply.status == 406
    if method == "GET":
        assert "text/event-stream" in reply.problem()
        assert "Accept" in reply.problem()


@on_one_store
@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("type", "types"),
        ("parent", "parents"),
        ("checkpoints", "checkpoint"),
        ("last-event-id", "last_event_id"),
        ("last_event", "last_event_id"),
        ("start", "last_event_id"),
        ("Last-Event-Id", "last_event_id"),
        ("Types", "types"),
    ],
)
def test_a_parameter_that_is_nearly_one_is_refused_with_the_right_name(
    target: Target, given: str, right: str
) -> None:
    reply = target.request("GET", f"/ops?{given}=1", headers=SSE)
    assert reply.status == 400
    assert reply.problem() == f"{given}: there is no such parameter; the name is {right}"


@on_one_store
def test_other_parameters_are_ignored(target: Target) -> None:
    with target.follow(utm_source="x", id="1", filter="y", Name="z", page="2") as stream:
        target.store(operation("insert", "a", "thing"))
        assert said(stream.block()) == ("insert", "a")


@on_one_store
def test_the_position_of_a_polyfill_counts_and_wins_over_the_one_of_its_address(
    target: Target,
) -> None:
    with target.follow(lastEventId="0") as stream:
        assert stream.block() == RESET
    with target.follow(last_event_id="1", lastEventId="0") as stream:
        assert stream.block() == RESET
    reply = target.request("GET", "/ops?lastEventId=x&last_event_id=0", headers=SSE)
    assert reply.status == 400


@on_one_store
def test_a_browser_gets_the_stream_only_at_its_own_path(target: Target) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
    assert target.request("GET", "/ops", headers=browser).status == 406
    assert (
        target.request("GET", "/", headers=browser).header("Content-Type")
        == "text/html; charset=utf-8"
    )


@on_one_store
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/ops"])
def test_the_headers_of_a_stream(target: Target, method: str, path: str) -> None:
    sent = [*SSE.items(), ("Last-Event-ID", "1"), ("Accept-Encoding", "gzip, deflate, br")]
    headers = _headers_of(target, method, path, sent)
    assert re.fullmatch(r"oplog/\d+\.\d+\.\d+\S*", headers.pop("server"))
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers.pop("date"))
    assert re.fullmatch(r"[0-9a-f]{32}", headers.pop("oplog-store"))
    headers.pop("transfer-encoding", "")
    headers.pop("connection", "")
    assert headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache, no-store, must-revalidate",
        "access-control-allow-origin": "*",
        "access-control-expose-headers": (
            "Oplog-Next, Oplog-Position, Oplog-Shard, Oplog-Store, Oplog-Term"
        ),
        "last-event-id": "1",
        "x-accel-buffering": "no",
    }


@on_one_store
@pytest.mark.parametrize("sent", [[], [("Last-Event-ID", "")]], ids=["no id", "empty id"])
def test_no_id_is_echoed_if_none_was_sent(target: Target, sent: list[tuple[str, str]]) -> None:
    assert not _headers_of(target, "GET", "/ops", [*SSE.items(), *sent]).get("last-event-id")


@on_one_store
def test_a_head_request_is_no_consumer(target: Target) -> None:
    assert wait_until(lambda: target.status()["clients"] == 0)
    before = target.status()
    reply = target.request("HEAD", "/ops", headers=SSE)
    assert (reply.status, reply.body) == (200, b"")
    after = target.status()
    assert (after["connections"], after["clients"]) == (before["connections"], 0)


BAD_IDS = [
    "x",
    "-1",
    "+1",
    "1.5",
    "1e3",
    "0x10",
    "1" * 14,
    "a" * 23,
    "a" * 25,
    "A" * 24,
    "g" * 24,
    "12345a",
    "1,2",
]


@on_one_store
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("bad", BAD_IDS)
def test_a_bad_id_in_the_header_is_refused(target: Target, method: str, bad: str) -> None:
    reply = target.request(method, "/ops", headers={**SSE, "Last-Event-ID": bad})
    assert reply.status == 400
    if method == "GET":
        assert "event id" in reply.problem()


@on_one_store
@pytest.mark.parametrize("bad", [*BAD_IDS[1:], "%20", "1%20", "1%0A", "%D9%A3", "1%00"])
def test_a_bad_id_in_the_query_is_refused(target: Target, bad: str) -> None:
    reply = target.request("GET", f"/ops?last_event_id={bad.replace('+', '%2B')}", headers=SSE)
    assert reply.status == 400
    assert "event id" in reply.problem()


@on_one_store
@pytest.mark.parametrize(
    "bad",
    [
        "yesterday",
        "2014-11-06",
        "2014-11-06T11:04:39",
        "2014-13-06T11:04:39Z",
        "-5",
        "1" * 14,
        "a" * 24,
        "%D9%A3",
    ],
)
def test_a_bad_time_is_refused(target: Target, bad: str) -> None:
    reply = target.request("GET", f"/ops?since={bad}", headers=SSE)
    assert reply.status == 400
    assert reply.problem().startswith("since: ")


@on_one_store
def test_an_invalid_checkpoint_parameter_is_refused(target: Target) -> None:
    reply = target.request("GET", "/ops?checkpoint=yes", headers=SSE)
    assert reply.status == 400
    assert "checkpoint" in reply.problem()


@on_one_store
def test_a_type_that_no_operation_can_have_is_refused(target: Target) -> None:
    reply = target.request("GET", f"/ops?types=video,{'x' * 256}", headers=SSE)
    assert reply.status == 400
    assert reply.problem() == "types: a value has 256 bytes; no type has more than 255"


@on_one_store
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("events=insert,upsert", "events: each must be insert, update or delete"),
        (f"ids={'x' * 1025}", "ids: a value has 1,025 bytes; no id has more than 1,024"),
    ],
)
def test_an_event_or_id_that_no_operation_can_have_is_refused(
    target: Target, query: str, sentence: str
) -> None:
    reply = target.request("GET", f"/ops?{query}", headers=SSE)
    assert (reply.status, reply.problem()) == (400, sentence)


@on_one_store
def test_more_filter_values_than_allowed_are_refused(target: Target) -> None:
    parents = ",".join(map(str, range(1_000)))
    with RawStream(target, f"/ops?parents={parents}", list(SSE.items())):
        pass
    reply = target.request("GET", f"/ops?types=video&parents={parents}", headers=SSE)
    assert reply.status == 400
    assert reply.problem() == (
        "types and parents: are 1,001 values, more than 1,000 (--max-filter-values)"
    )


def _headers_of(target: Target, method: str, path: str, sent: Headers) -> dict[str, str]:
    if method == "HEAD":
        pairs = target.request("HEAD", path, headers=sent).headers
    else:
        with RawStream(target, path, sent) as stream:
            pairs = stream.headers
    headers = {name.lower(): value for name, value in pairs}
    assert len(headers) == len(pairs)
    return headers
