"""Ingest: accepted and refused operations, and the answers."""

import gzip
import json
import re
from datetime import UTC, datetime

import pytest

from tests.contract.wire.operations import ACCEPTED, LARGEST_DATAGRAM, REJECTED, Accepted, Rejected
from tests.contract.wire.store_kinds import on_one_store
from tests.kits.contract.wire import (
    JSON,
    NDJSON,
    Target,
    data_of,
    event_of,
    frame,
    fresh_type,
    id_of,
    operation,
    said,
    wait_until,
)

COUNTS = ("events_received", "events_ingested", "events_error", "events_discarded")


class Counted:
    """Growth of the counters since this object was made."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._before = target.status()

    def wait(self, received: int, ingested: int, error: int, discarded: int = 0) -> None:
        """Wait until all sent operations are counted, then compare exactly."""
        wait_until(lambda: sum(self._grown()[1:]) >= received)
        assert self._grown() == (received, ingested, error, discarded)

    def _grown(self) -> tuple[int, ...]:
        after = self._target.status()
        return tuple(after[name] - self._before[name] for name in COUNTS)


@pytest.mark.parametrize("row", ACCEPTED, ids=lambda row: row.name)
def test_a_valid_operation_is_stored_and_sent_as_written(target: Target, row: Accepted) -> None:
    with target.follow() as stream:
        reply = target.post(row.raw)
        assert (reply.status, reply.body) == (204, b"")
        block = stream.block()
        assert block == frame(id_of(block), row.event, row.data)


@on_one_store
@pytest.mark.parametrize("row", REJECTED, ids=lambda row: row.name)
def test_an_invalid_operation_is_refused_with_the_field_named(
    target: Target, row: Rejected
) -> None:
    counted = Counted(target)
    reply = target.post(row.raw)
    assert reply.status == 400
    sentence = reply.problem()
    (error,) = reply.json["errors"]
    assert (error["line"], error["field"]) == (1, row.field)
    assert sentence == f"{row.field}: {error['reason']}"
    counted.wait(received=1, ingested=0, error=1)


def test_each_datagram_is_counted_as_ingested_or_error(target: Target) -> None:
    good = [row for row in ACCEPTED if len(row.raw) <= LARGEST_DATAGRAM]
    bad = [row.raw for row in REJECTED if len(row.raw) <= LARGEST_DATAGRAM]
    counted = Counted(target)
    with target.follow() as stream:
        target.send_udp(*bad, *(row.raw for row in good))
        for row, block in zip(good, stream.take(len(good)), strict=True):
            assert block == frame(id_of(block), row.event, row.data), row.name
    counted.wait(received=len(good) + len(bad), ingested=len(good), error=len(bad))


@on_one_store
def test_a_datagram_with_a_batch_is_an_error(target: Target) -> None:
    counted = Counted(target)
    one = json.dumps(operation("insert", "a", "thing"))
    target.send_udp(f"[{one}]".encode(), f"{one}\n{one}".encode())
    counted.wait(received=2, ingested=0, error=2)


@on_one_store
@pytest.mark.parametrize("member", [{}, {"timestamp": None}])
def test_an_operation_without_timestamp_gets_the_time_of_its_arrival(
    target: Target, member: dict[str, None]
) -> None:
    with target.follow() as stream:
        before = datetime.now(UTC)
        assert target.post({**operation("insert", "a", "thing"), **member}).status == 204
        after = datetime.now(UTC)
        timestamp = data_of(stream.block())["timestamp"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", timestamp)
    arrived = datetime.fromisoformat(timestamp)
    assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= arrived <= after


@on_one_store
@pytest.mark.parametrize("path", ["/", "/ops"])
@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        'Application/JSON;charset="UTF-8"',
        "application/json ; a=b",
    ],
)
def test_json_is_taken_with_any_parameter_at_both_paths(
    target: Target, path: str, content_type: str
) -> None:
    with target.follow() as stream:
        body = json.dumps(operation("update", "a", "thing")).encode()
        assert target.post(body, {"Content-Type": content_type}, path).status == 204
        assert said(stream.block()) == ("update", "a")


@pytest.mark.parametrize("path", ["/", "/ops"])
def test_an_array_is_stored_in_its_order(target: Target, path: str) -> None:
    counted = Counted(target)
    with target.follow() as stream:
        reply = target.post([operation("insert", str(n), "thing") for n in range(100)], path=path)
        assert (reply.status, reply.header("Content-Type")) == (200, "application/json")
        assert reply.body == b'{"ingested":100}'
        blocks = stream.take(100)
    assert [said(block) for block in blocks] == [("insert", str(n)) for n in range(100)]
    ids = [id_of(block) for block in blocks]
    assert ids == sorted(set(ids))
    counted.wait(received=100, ingested=100, error=0)


@on_one_store
@pytest.mark.parametrize(
    "content_type", ["application/x-ndjson", "application/x-ndjson; charset=utf-8"]
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_ndjson_is_stored_in_its_order_without_its_empty_lines(
    target: Target, content_type: str, end: bytes
) -> None:
    lines = [json.dumps(operation("insert", str(n), "thing")).encode() for n in range(3)]
    with target.follow() as stream:
        reply = target.post(
            end.join([lines[0], b"", *lines[1:], b""]), {"Content-Type": content_type}
        )
        assert (reply.status, reply.body) == (200, b'{"ingested":3}')
        assert [said(block) for block in stream.take(3)] == [("insert", str(n)) for n in range(3)]


@on_one_store
@pytest.mark.parametrize(
    ("headers", "body"), [(JSON, b"[]"), (JSON, b""), (NDJSON, b""), (NDJSON, b"\n\r\n ")]
)
def test_a_body_without_an_operation_is_refused(
    target: Target, headers: dict[str, str], body: bytes
) -> None:
    counted = Counted(target)
    reply = target.post(body, headers)
    assert reply.status == 400
    assert reply.problem().startswith("operation: ")
    counted.wait(received=1, ingested=0, error=1)


@on_one_store
def test_a_batch_names_every_bad_line_and_stores_nothing(target: Target) -> None:
    good = json.dumps(operation("insert", "good", "thing"))
    wrong_event = json.dumps(operation("upsert", "a", "thing"))
    no_id = json.dumps(operation("insert", "", "thing"))
    ndjson = "\n".join([good, wrong_event, "", no_id, good, "{"]).encode()
    array = f"[{good}, {wrong_event}, {good}, {no_id}]".encode()
    counted = Counted(target)
    with target.follow() as stream:
        for headers, body, expected in (
            (NDJSON, ndjson, [(2, "event"), (4, "id"), (6, "operation")]),
            (JSON, array, [(2, "event"), (4, "id")]),
        ):
            reply = target.post(body, headers)
            assert reply.status == 400
            assert "nothing was stored" in reply.problem()
            assert [(error["line"], error["field"]) for error in reply.json["errors"]] == expected
            assert all(error["reason"] for error in reply.json["errors"])
        target.store(operation("insert", "after", "thing"))
        assert said(stream.block()) == ("insert", "after")
    counted.wait(received=10, ingested=1, error=9)


@on_one_store
@pytest.mark.parametrize("body", [b"[", b"[{}", b'[{"event":"insert"},]', b"[1 2]", b"[\xff]"])
def test_an_array_that_cannot_be_read_is_refused(target: Target, body: bytes) -> None:
    reply = target.post(body)
    assert reply.status == 400
    assert reply.problem().startswith("operation: ")


@on_one_store
@pytest.mark.parametrize("coding", ["gzip", "GZIP"])
@pytest.mark.parametrize("members", [1, 3])
def test_a_gzip_body_is_taken(target: Target, coding: str, members: int) -> None:
    lines = [
        json.dumps(operation("insert", str(n), "thing")).encode() + b"\n" for n in range(members)
    ]
    body = b"".join(gzip.compress(line) for line in lines)
    with target.follow() as stream:
        reply = target.post(body, {**NDJSON, "Content-Encoding": coding})
        assert (reply.status, reply.json) == (200, {"ingested": members})
        assert [said(block) for block in stream.take(members)] == [
            ("insert", str(n)) for n in range(members)
        ]


@on_one_store
@pytest.mark.parametrize(
    "body", [b"{}", gzip.compress(b"{}" * 50)[:-5]], ids=["no gzip", "cut off"]
)
def test_a_body_that_is_no_gzip_is_refused(target: Target, body: bytes) -> None:
    reply = target.post(body, {**JSON, "Content-Encoding": "gzip"})
    assert reply.status == 400
    assert "gzip" in reply.problem()


@on_one_store
def test_another_compression_is_refused(target: Target) -> None:
    reply = target.post(b"{}", {**JSON, "Content-Encoding": "br"})
    assert reply.status == 415
    assert "gzip" in reply.problem()
    assert reply.header("Accept-Encoding") == "gzip"


@on_one_store
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": ""},
        *({"Content-Type": t} for t in ("text/plain", "text/json", "application/jsonl", "*/*")),
    ],
)
def test_a_body_of_another_content_type_is_refused(target: Target, headers: dict[str, str]) -> None:
    counted = Counted(target)
    reply = target.post(operation("insert", "a", "thing"), headers)
    assert reply.status == 415
    sentence = reply.problem()
    assert "application/json" in sentence
    assert "application/x-ndjson" in sentence
    counted.wait(received=0, ingested=0, error=0)


@on_one_store
def test_a_web_page_cannot_write_without_a_preflight_that_is_not_granted(target: Target) -> None:
    """Only these three types need no preflight. The preflight does not allow POST."""
    for content_type in ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded"):
        headers = {"Content-Type": content_type, "Origin": "http://example.com"}
        assert target.post(operation("insert", "a", "thing"), headers).status == 415
    asked = {"Origin": "http://example.com", "Access-Control-Request-Method": "POST"}
    for path in ("/", "/ops", "/status"):
        reply = target.request("OPTIONS", path, headers=asked)
        assert reply.status == 204
        assert reply.header("Access-Control-Allow-Methods") == "GET, HEAD"


def test_an_answered_operation_is_durable_and_sent(target: Target) -> None:
    type_ = fresh_type()
    for number in range(8):
        assert target.post(operation("insert", str(number), type_)).status == 204
        with target.follow("1", types=type_) as stream:
            told = [said(block) for block in stream.until("live") if event_of(block) == "insert"]
        assert told == [("insert", str(n)) for n in range(number + 1)]
