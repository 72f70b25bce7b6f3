"""Requests as raw bytes: offers of an upgrade, framing of bodies, pipelines."""

import json
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.web.connection import H2C, NDJSON, Growth, RawConnection, chunked, length, lines

WEBSOCKET = (
    b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
OFFERS = {"h2c": H2C, "websocket": WEBSOCKET, "none": b""}
# Operations for more than a megabyte: many packets, and many pieces for the parser.
LARGE = 500
# Fifty requests with it are more than is read at once.
PADDING = b"X-Padding: " + b"p" * 1_000 + b"\r\n"


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("packets", ["one packet", "body apart", "byte by byte"])
@pytest.mark.parametrize("framing", ["length", "chunks", "length and 100-continue"])
def test_a_body_is_stored_whole_whatever_upgrade_is_offered(
    agent: Agent, stored: Growth, offer: str, packets: str, framing: str
) -> None:
    body = lines(3)
    head = NDJSON + OFFERS[offer] + (b"Expect: 100-continue\r\n" if "100" in framing else b"")
    raw = head + (chunked([body[:50], body[50:]]) if framing == "chunks" else length(body) + body)
    at = raw.index(b"\r\n\r\n") + 4
    parts = {
        "one packet": [raw],
        "body apart": [raw[:at], raw[at:]],
        "byte by byte": [bytes([b]) for b in raw],
    }
    with RawConnection(agent) as connection:
        reply = connection.send(*parts[packets]).reply()
        assert (reply.status, reply.body) == (200, b'{"ingested":3}')
        # The connection goes on as HTTP/1.1.
        assert (
            connection.send(NDJSON + length(lines(1)) + lines(1)).reply().body == b'{"ingested":1}'
        )
    assert stored() == 4


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_large_body_behind_an_offer_is_stored_whole(
    agent: Agent, stored: Growth, framing: str
) -> None:
    body = lines(LARGE).replace(b"}", b',"parents":["%s"]}' % (b"p" * 2_000))
    assert len(body) > 1_000_000
    raw = (
        length(body) + body
        if framing == "length"
        else chunked(body[at : at + 7000] for at in range(0, len(body), 7000))
    )
    with RawConnection(agent) as connection:
        reply = connection.send(NDJSON + H2C + raw).reply()
    assert (reply.status, reply.json) == (200, {"ingested": LARGE})
    assert stored() == LARGE


def test_one_operation_and_an_array_behind_an_offer_are_stored(
    agent: Agent, stored: Growth
) -> None:
    one = lines(1).strip()
    json_ = NDJSON.replace(b"x-ndjson", b"json") + H2C
    with RawConnection(agent) as connection:
        assert connection.send(json_ + length(one), one).reply().status == 204
        array = b"[" + one + b"," + one + b"]"
        assert connection.send(json_ + length(array), array).reply().body == b'{"ingested":2}'
    assert stored() == 3


def test_a_request_within_a_body_is_not_executed(agent: Agent, stored: Growth) -> None:
    inner = NDJSON + length(lines(1)) + lines(1)
    with RawConnection(agent) as connection:
        reply = connection.send(NDJSON + H2C + length(inner), inner).reply()
        assert reply.status == 400
        assert "nothing was stored" in reply.problem()
        assert (
            connection.send(NDJSON + b"Connection: close\r\n" + length(lines(1)) + lines(1))
            .reply()
            .status
            == 200
        )
        assert connection.rest() == b""
    assert stored() == 1


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("count", [5, 100])
def test_pipelined_requests_are_answered_in_their_order(
    agent: Agent, stored: Growth, offer: str, count: int
) -> None:
    raw = b""
    for number in range(1, count + 1):
        body = lines(number % 7 + 1)
        raw += NDJSON + PADDING * (number > 50) + OFFERS[offer] + length(body) + body
    with RawConnection(agent) as connection:
        connection.send(raw)
        answers = [connection.reply().json["ingested"] for _ in range(count)]
    assert answers == [number % 7 + 1 for number in range(1, count + 1)]
    assert stored() == sum(answers)


@pytest.mark.parametrize("connection_header", [b"", b"Connection: close\r\n"])
def test_a_body_longer_than_announced_is_refused(
    agent: Agent, stored: Growth, connection_header: bytes
) -> None:
    with RawConnection(agent) as connection:
        reply = connection.send(NDJSON + connection_header + length(lines(2)) + lines(3)).reply()
        assert reply.status == 400
        assert "HTTP" in reply.problem()
        assert connection.rest() == b""
    assert stored() == 0


def test_a_body_shorter_than_announced_is_refused(agent: Agent, stored: Growth) -> None:
    with RawConnection(agent) as connection:
        connection.send(NDJSON + length(lines(3)) + lines(2))
        connection.socket.shutdown(1)
        reply = connection.reply()
    assert reply.status == 400
    assert "whole body" in reply.problem()
    assert stored() == 0


def test_bytes_after_a_stored_request_are_refused_after_its_answer(
    agent: Agent, stored: Growth
) -> None:
    with RawConnection(agent) as connection:
        assert connection.send(NDJSON + length(lines(2)) + lines(2)).reply().json == {"ingested": 2}
        assert connection.send(b"rubbish\r\n").reply().status == 400
        assert connection.rest() == b""
    assert stored() == 2


@pytest.mark.parametrize("count", range(2, 6))
def test_rubbish_behind_whole_requests_costs_none_of_their_answers(
    agent: Agent, stored: Growth, count: int
) -> None:
    raw = NDJSON + length(lines(1)) + lines(1)
    with RawConnection(agent) as connection:
        connection.send(raw * count + b"rubbish\r\n\r\n")
        assert [connection.reply().status for _ in range(count + 1)] == [200] * count + [400]
        assert connection.rest() == b""
    assert stored() == count


@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_client_that_ends_its_side_is_answered(agent: Agent, stored: Growth, count: int) -> None:
    with RawConnection(agent) as connection:
        short, padded = (NDJSON + each + length(lines(1)) + lines(1) for each in (b"", PADDING))
        connection.send(short * min(count, 50) + padded * (count - 50)).socket.shutdown(1)
        assert [connection.reply().json for _ in range(count)] == [{"ingested": 1}] * count
        assert connection.rest() == b""
    assert stored() == count


ANSWERED_EARLY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n"


@pytest.mark.parametrize("end", [b"", b"no chunk\r\n"], ids=["end", "rubbish"])
def test_a_request_answered_before_its_body_came_is_answered_once(agent: Agent, end: bytes) -> None:
    with RawConnection(agent) as connection:
        assert (
            connection.send(ANSWERED_EARLY + b"Transfer-Encoding: chunked\r\n\r\n").reply().status
            == 415
        )
        connection.send(end).socket.shutdown(1)
        assert connection.rest() == b""


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_with_connection_close_a_client_may_send_all_of_a_refused_body(
    agent: Agent, version: bytes
) -> None:
    body = b"x" * 5_000_000
    with RawConnection(agent) as connection:
        head = ANSWERED_EARLY.replace(b"1.1", version) + b"Connection: close\r\n"
        reply = connection.send(head + length(body)).reply()
        assert reply.status == 415
        assert reply.headers["connection"] == "close"
        for at in range(0, len(body), 100_000):
            connection.send(body[at : at + 100_000])
        assert connection.rest() == b""


@pytest.mark.parametrize(
    "change",
    [
        (b"POST / ", b"POST http://a/ops "),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"HTTP/1.1", b"HTTP/1.0\r\nConnection: keep-alive"),
        (b"POST /", b"\r\nPOST /"),
    ],
    ids=["absolute target", "HTTP/1.0", "HTTP/1.0 keep-alive", "blank line before"],
)
def test_older_forms_of_a_request_are_taken(
    agent: Agent, stored: Growth, change: tuple[bytes, bytes]
) -> None:
    with RawConnection(agent) as connection:
        reply = connection.send(NDJSON.replace(*change) + length(lines(2)) + lines(2)).reply()
        assert reply.json == {"ingested": 2}
    assert stored() == 2


def test_a_trailer_is_no_header(agent: Agent, stored: Growth) -> None:
    raw = chunked([lines(2)])[:-2] + b"Content-Encoding: gzip\r\n\r\n"
    with RawConnection(agent) as connection:
        assert connection.send(NDJSON + raw[:20], raw[20:]).reply().json == {"ingested": 2}
    assert stored() == 2


def test_an_upgrade_offered_with_a_get_is_answered_as_http_1(agent: Agent) -> None:
    for offer in (H2C, WEBSOCKET):
        with RawConnection(agent) as connection:
            for _ in range(2):
                reply = connection.send(
                    b"GET /status HTTP/1.1\r\nHost: a\r\n" + offer + b"\r\n"
                ).reply()
                assert (reply.status, reply.json["status"]) == (200, "OK")


def test_offers_and_broken_uploads_leave_one_line_each_and_no_traceback(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        for _ in range(20):
            with RawConnection(agent) as connection:
                assert (
                    connection.send(NDJSON + H2C + length(lines(1)) + lines(1)).reply().status
                    == 200
                )
            with RawConnection(agent) as connection:
                connection.send(NDJSON + b"Content-Length: 1000\r\n\r\n{")
        agent.wait_log("before the whole body came")
        assert agent.post(json.loads(lines(1))) == 204
        assert agent.stop() == 0
        log = "".join(agent.log)
    assert "Traceback" not in log
    assert "WARNING" not in log
    assert (
        log.count("refused a request: 127.0.0.1: the connection ended before the whole body came")
        == 1
    )
    assert len(log.splitlines()) == 5  # this line, the start, and three lines of the stop


def test_a_refused_request_that_expects_100_leaves_no_traceback(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        for _ in range(5):
            with RawConnection(agent) as connection:
                raw = NDJSON + b"Expect: 100-continue\r\n" + length(lines(1)) + lines(1)
                assert connection.send(raw + b"rubbish\r\n\r\n").reply().status == 400
                assert connection.rest() == b""
        assert agent.stop() == 0
        assert "Traceback" not in "".join(agent.log)
