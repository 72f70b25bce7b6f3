"""Requests without an end: endless headers, uploads without progress, unanswered pipelines."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, write_lock
from tests.kits.web.connection import NDJSON, RawConnection, chunked, length, lines

GET = b"GET /live HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    flags = ("--header-timeout", "300ms", "--body-timeout", "1s", "--max-header-size", "8KB")
    with Agent(tmp_path_factory.mktemp("agent"), *flags) as agent:
        yield agent


def head_of(size: int) -> bytes:
    """Return a request whose URL and headers have this size.

    Name, value, colon, blank and line end of a header count.
    """
    return (
        GET
        + b"X: "
        + b"a" * (size - len("/live") - len("Host: a\r\n") - len("X: \r\n"))
        + b"\r\n\r\n"
    )


def test_headers_may_have_the_size_of_the_flag(agent: Agent) -> None:
    with RawConnection(agent) as connection:
        assert connection.send(head_of(8192)).reply().status == 200
        reply = connection.send(head_of(8193)).reply()
        assert reply.status == 431
        assert "8,192 bytes (--max-header-size)" in reply.problem()
        assert connection.rest() == b""


ENDLESS = {
    "one value": GET + b"X: " + b"a" * 3_000_000,
    "one name": GET + b"a" * 3_000_000,
    "one URL": b"GET /" + b"a" * 3_000_000,
    "blank lines": b"\r\n" * 1_500_000,
    "tiny headers": GET + b"a:b\r\n" * 600_000,
    "a few headers more than allowed": GET + b"a:b\r\n" * 256 + b"\r\n",
    "a trailer": NDJSON + chunked([lines(1)])[:-2] + b"X: " + b"a" * 3_000_000,
    "tiny trailers": NDJSON + chunked([lines(1)])[:-2] + b"a:b\r\n" * 600_000,
    "a chunk's extension": NDJSON + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"a" * 3_000_000,
}


@pytest.mark.parametrize("name", ENDLESS)
def test_headers_without_an_end_are_refused(agent: Agent, name: str) -> None:
    before = agent.status()["events_ingested"]
    with RawConnection(agent) as connection:
        reply = connection.send(ENDLESS[name]).reply()
        assert reply.status == 431
        assert reply.problem()
        assert connection.rest() == b""
    assert agent.status()["events_ingested"] == before


@pytest.mark.parametrize(
    "part", [GET, b"G", NDJSON + b"X: ", b"\r\n"], ids=["line", "method", "value", "blank line"]
)
@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["first", "second"])
def test_half_a_header_is_answered_in_time(agent: Agent, part: bytes, before: bytes) -> None:
    with RawConnection(agent) as connection:
        if before:
            assert connection.send(before).reply().status == 200
        reply = connection.send(part).reply()
        assert reply.status == 408
        assert "--header-timeout" in reply.problem()
        assert connection.rest() == b""


def test_a_trickling_header_is_answered_in_time(agent: Agent) -> None:
    with RawConnection(agent) as connection:
        connection.send(GET).socket.settimeout(0.02)
        deadline = time.monotonic() + DEADLINE
        while True:
            assert time.monotonic() < deadline, "the agent waits for ever"
            connection.send(b"a: b\r\n")
            try:
                answer = connection.socket.recv(1000)
            except TimeoutError:
                continue
            break
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_silent_connection_is_closed(agent: Agent) -> None:
    with RawConnection(agent) as connection:
        assert connection.rest() == b""


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_that_stops_is_answered_in_time_and_not_stored(agent: Agent, framing: str) -> None:
    before = agent.status()["events_ingested"]
    raw = (length(lines(3)) + lines(3) if framing == "length" else chunked([lines(2), lines(1)]))[
        :-3
    ]
    with RawConnection(agent) as connection:
        reply = connection.send(NDJSON + raw).reply()
        assert reply.status == 408
        assert "--body-timeout" in reply.problem()
        assert connection.rest() == b""
    assert agent.status()["events_ingested"] == before


def test_a_trickling_body_is_refused_and_a_steady_one_is_stored(tmp_path: Path) -> None:
    """Both bodies always make progress, and both take longer than --body-timeout."""
    steady, dripping = lines(900), lines(1000)
    with (
        Agent(tmp_path, "--body-timeout", "3s") as agent,
        RawConnection(agent) as slow,
        RawConnection(agent) as drip,
    ):
        slow.send(NDJSON + length(steady))
        drip.send(NDJSON + length(dripping))
        drip.socket.settimeout(0.001)

        def heard() -> bytes:
            with contextlib.suppress(TimeoutError):
                return drip.socket.recv(1000)
            return b""

        begun = time.monotonic()
        answer = b""
        parts = 12
        for number in range(parts + 1):
            slow.send(steady[number * len(steady) // parts : (number + 1) * len(steady) // parts])
            if not (answer := answer or heard()):
                drip.send(dripping[number : number + 1])
            time.sleep(0.27)  # the pace of the senders
        assert time.monotonic() - begun > 3.3
        assert slow.reply().json == {"ingested": 900}
        deadline = time.monotonic() + DEADLINE
        while not (answer := answer or heard()):
            assert time.monotonic() < deadline, "the agent waits for ever"
            drip.send(b" ")
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_begins_fast_may_not_trickle_for_long(agent: Agent) -> None:
    """If only the average rate counted, this body could go on for minutes."""
    body = lines(20_000)
    with RawConnection(agent) as connection:
        connection.send(NDJSON + length(body), body[:-10_000]).socket.settimeout(0.05)
        deadline = time.monotonic() + DEADLINE
        while True:
            assert time.monotonic() < deadline, "the agent waits for ever"
            connection.send(b" ")
            try:
                answer = connection.socket.recv(1000)
            except TimeoutError:
                continue
            break
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_slow_uploads_give_way_to_others(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    flags = ("--body-timeout", "3s", "--max-upload-memory", "300KB")
    other = lines(5_000)
    headers = {"Content-Type": "application/x-ndjson"}
    with Agent(tmp_path_factory.mktemp("agent"), *flags) as agent, RawConnection(agent) as slow:
        slow.send(NDJSON + b"Content-Length: 300000\r\n\r\n" + b" " * 200_000)
        statuses: list[int] = []
        deadline = time.monotonic() + DEADLINE
        while 503 not in statuses or statuses[-1] != 200:
            assert time.monotonic() < deadline, "the slow upload keeps its room"
            # Five times the least rate, so that a busy machine does not make it a slow one.
            slow.send(b" " * 2_000)
            statuses.append(agent.request("POST", "/", other, headers).status)
            time.sleep(0.1)  # the pace of the sender
        reply = slow.reply()
        assert reply.status == 503
        assert "--max-upload-memory" in reply.problem()


def test_a_body_is_not_timed_while_the_request_before_it_waits_for_the_store(
    tmp_path: Path,
) -> None:
    with Agent(tmp_path, "--body-timeout", "300ms") as agent, RawConnection(agent) as connection:
        with write_lock(tmp_path):
            connection.send(
                NDJSON + length(lines(1)) + lines(1), NDJSON + length(lines(3)) + lines(2)
            )
            for _ in range(2):
                with RawConnection(agent) as other:
                    assert other.send(NDJSON + length(lines(3)) + lines(2)).reply().status == 408
            connection.send(lines(1, first=2))  # while it waits: from then on it is timed
        assert [connection.reply().json for _ in range(2)] == [{"ingested": 1}, {"ingested": 3}]


def test_a_request_refused_early_does_not_keep_its_connection_for_ever(agent: Agent) -> None:
    with RawConnection(agent) as connection:
        head = b"POST / HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n"
        assert connection.send(head + b"x").reply().status == 415
        assert connection.rest() == b""


def test_a_stream_outlives_the_time_for_requests(agent: Agent) -> None:
    with agent.follow() as stream:
        for half in (NDJSON + length(lines(2)) + lines(1), GET):
            with RawConnection(agent) as connection:
                assert connection.send(half).reply().status == 408
        assert agent.post(json.loads(lines(1))) == 204
        assert stream.take(1)[0].key == "thing/0"


def test_a_refused_client_may_go_on_sending_and_still_reads_its_answer(agent: Agent) -> None:
    with RawConnection(agent) as connection:
        connection.send(b"hello\r\n\r\n")
        for _ in range(20):
            connection.send(b"x" * 10_000)
        assert connection.reply().status == 400


def test_consumers_of_one_address_are_limited_by_the_flag(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Agent(tmp_path_factory.mktemp("agent"), "--max-clients-per-address", "2") as agent:
        for _ in range(3):
            with agent.follow(), agent.follow():
                reply = agent.request("GET", "/ops", headers={"Accept": "text/event-stream"})
                assert reply.status == 429
                assert "--max-clients-per-address" in reply.json["detail"]
                assert int(reply.headers["retry-after"]) > 0
                assert agent.post(json.loads(lines(1))) == 204
            agent.wait_status(clients=0)
