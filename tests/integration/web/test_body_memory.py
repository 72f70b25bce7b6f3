"""The cost of hostile bodies and headers: memory of the agent, delay of other requests."""

import contextlib
import gzip
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, write_lock
from tests.kits.contract.wire import wait_until
from tests.kits.web.connection import NDJSON, RawConnection, length, lines
from tests.kits.web.hostile import packed, repeated
from tests.kits.web.memory import Memory
from tests.kits.web.unread import all_read

JSON = NDJSON.replace(b"x-ndjson", b"json")
GZIP = b"Content-Encoding: gzip\r\n"
MB = 1 << 20
# The default of --max-body-size.
BODY = 16 * MB

ALLOWED = 200 * MB


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with Agent(tmp_path) as agent:
        assert agent.post(json.loads(lines(1))) == 204
        yield agent


def members(count: int) -> bytes:
    return gzip.compress(b"", 9, mtime=0) * count


def filled(size: int) -> bytes:
    """Return as many operations of this size as a body may have, one per line."""
    padding = b"p" * (
        size - len(b'{"event":"insert","type":"thing","id":"000000","parents":[""]}\n')
    )
    line = b'{"event":"insert","type":"thing","id":"%06d","parents":["' + padding + b'"]}\n'
    return b"".join(line % number for number in range(BODY // size))


BODIES: dict[str, Callable[[], tuple[bytes, bytes, int]]] = {
    "array of zeros": lambda: (JSON, b"[" + b"0," * (BODY // 2 - 2) + b"0]", 413),
    "array of zeros in gzip": lambda: (
        JSON + GZIP,
        packed(repeated(b"0,", BODY - 2 * MB, b"[", b"0]")),
        413,
    ),
    "array of brackets": lambda: (JSON, b"[[" + b"[]," * (BODY // 3 - 2) + b"[]]]", 400),
    "lines of zeros": lambda: (NDJSON, b"0\n" * (BODY // 2), 413),
    "lines of zeros in gzip": lambda: (NDJSON + GZIP, packed(b"0\n" * (BODY // 2)), 413),
    "as many bad lines as are taken": lambda: (NDJSON, b"0\n" * 100_000, 400),
    "bad elements in a long array": lambda: (JSON, b"[" + b'{"a":[0,0,0]},' * 99_999 + b"0]", 400),
    "blank lines": lambda: (NDJSON, b"\n" * BODY, 400),
    "blanks": lambda: (JSON, b" " * BODY, 400),
    "nested arrays": lambda: (JSON, b"[" * BODY, 400),
    "nested objects": lambda: (JSON, b'{"a":' * (BODY // 5), 400),
    "one string": lambda: (JSON, b'"' + b"a" * (BODY - 2) + b'"', 400),
    "one string of escapes": lambda: (
        JSON,
        b"[0," + b"0," * 200_000 + b'"' + b'\\"' * (BODY // 2 - 300_000) + b'"]',
        413,
    ),
    "one line": lambda: (NDJSON, b"a" * BODY, 400),
    "gzip over the limit": lambda: (JSON + GZIP, packed(bytes(250 * MB)), 413),
    "gzip members": lambda: (JSON + GZIP, members(BODY // 20), 413),
    "no gzip": lambda: (JSON + GZIP, b"\x1f\x8b" + b"\0" * (BODY - 2), 400),
    "valid lines of large operations in gzip": lambda: (
        NDJSON + GZIP,
        gzip.compress(filled(57_000), 1),
        200,
    ),
    "valid array": lambda: (JSON, b"[" + lines(100_000)[:-1].replace(b"\n", b",") + b"]", 200),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_costs_a_bounded_amount_of_memory(agent: Agent, name: str) -> None:
    head, body, status = BODIES[name]()
    assert len(body) <= BODY
    memory = Memory(agent)
    with RawConnection(agent) as connection:
        reply = connection.send(head + length(body), body).reply()
    assert reply.status == status, reply
    assert len(reply.body) < 50_000
    assert memory.peak() < ALLOWED


def test_other_requests_are_answered_while_a_long_body_is_decoded(agent: Agent) -> None:
    """100,000 invalid lines take about a second. In one block they would let at most two requests
    through.
    """
    answers: list[int] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            answers.append(agent.request("GET", "/live").status)

    asking = threading.Thread(target=ask)
    body = b"[0]\n" * 100_000
    with RawConnection(agent) as connection:
        connection.send(NDJSON + length(body), body[:-4])
        asking.start()
        before = len(answers)
        assert connection.send(body[-4:]).reply().status == 400
        during = len(answers) - before
    is_over.set()
    asking.join(DEADLINE)
    assert set(answers) == {200}
    assert during > 2


@pytest.mark.parametrize("size", [200, 57_000])
def test_a_large_body_takes_little_memory_and_status_is_answered_while_it_is_stored(
    agent: Agent, size: int
) -> None:
    """In one block each body would let at most two requests through."""
    memory = Memory(agent)
    answers: list[str] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            answers.append(agent.status()["status"])

    bodies = [filled(size)] * (3 if size > 1_000 else 1)
    asking = threading.Thread(target=ask)
    with RawConnection(agent) as connection:
        asking.start()
        before = len(answers)
        peaks = []
        for body in bodies:
            assert connection.send(NDJSON + length(body), body).reply().status == 200
            peaks.append(memory.peak())
        during = len(answers) - before
    is_over.set()
    asking.join(DEADLINE)
    assert set(answers) == {"OK"}
    assert during > 2 * len(bodies)
    assert peaks[0] < ALLOWED  # the ring keeps the operations of every body


@pytest.mark.parametrize("content_type", ["a" * 60_000, "text/plain"])
def test_an_answer_repeats_little_of_a_request(agent: Agent, content_type: str) -> None:
    reply = agent.request("POST", "/", b"{}", {"Content-Type": content_type})
    assert reply.status == 415
    assert len(reply.body) < 2000


def test_unfinished_uploads_share_one_budget(agent: Agent) -> None:
    """Of sixteen uploads of 16 MB without their last byte, the excess over the budget is refused at
    once.
    """
    memory = Memory(agent)
    part = b"a" * MB
    with ExitStack() as stack:
        uploads = [stack.enter_context(RawConnection(agent)) for _ in range(16)]
        refused: set[RawConnection] = set()
        for upload in uploads:
            upload.send(NDJSON + b"Content-Length: %d\r\n\r\n" % BODY)
        for _ in range(15):
            for upload in uploads:
                upload.send(part)
        while len(refused) < 12:
            waiting = [upload.socket for upload in uploads if upload not in refused]
            answered, _, _ = select.select(waiting, [], [], DEADLINE)
            assert answered, f"{len(refused)} of 16 uploads are refused"
            for upload in uploads:
                if upload.socket not in answered:
                    continue
                upload.socket.settimeout(DEADLINE)
                raw = b""
                while not raw.endswith(b"}"):  # the headers come first
                    more = upload.socket.recv(10_000)
                    assert more, raw
                    raw += more
                assert raw.startswith(b"HTTP/1.1 503 ")
                assert b"--max-upload-memory" in raw
                assert b"retry-after: " in raw.lower()
                refused.add(upload)
        assert memory.peak() < ALLOWED
        agent.wait_status(status="OK")
    # The budget is free again.
    body = b"\n" * (BODY - 1000) + lines(1)
    reply = agent.request("POST", "/", body, {"Content-Type": "application/x-ndjson"})
    assert reply.status == 200


def test_a_compressed_body_counts_with_its_decompressed_size(tmp_path: Path) -> None:
    with Agent(tmp_path, "--max-upload-memory", "1MB") as agent:
        small, large = (gzip.compress(b"\n" * size + lines(1)) for size in (500_000, 2_000_000))
        for body, status in ((small, 200), (large, 413), (small, 200)):
            headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
            reply = agent.request("POST", "/", body, headers)
            assert reply.status == status
        with RawConnection(agent) as connection:
            connection.send(NDJSON + b"Content-Length: 900000\r\n\r\n" + b"\n" * 800_000)
            sides = connection.socket.getsockname(), connection.socket.getpeername()
            assert wait_until(lambda: all_read(*sides))
            assert agent.request("POST", "/", small, headers).status == 503
        refused = agent.status()["bodies_refused"]
        assert refused == {"invalid": 0, "too_large": 1, "type": 0, "no_room": 1}


def test_headers_and_pipelined_requests_cost_a_bounded_amount_of_memory(agent: Agent) -> None:
    memory = Memory(agent)
    floods = (
        b"GET /live HTTP/1.1\r\n" + b"a:b\r\n" * 8_000_000,
        b"GET /live HTTP/1.1\r\nX: " + b"a" * 40_000_000,
        b"GET /live HTTP/1.1\r\n\r\n" * 1_000_000,
        b"GET /live HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n" + b"a" * 40_000_000,
    )
    for flood in floods:
        with RawConnection(agent) as connection:
            connection.socket.settimeout(1)
            with contextlib.suppress(TimeoutError, ConnectionError):  # the agent takes no more
                connection.send(flood)
        agent.wait_status(status="OK")
    assert memory.peak() < ALLOWED / 4


def test_a_pipeline_behind_a_waiting_request_is_not_read_into_memory(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        memory = Memory(agent)
        one = NDJSON + length(lines(1)) + lines(1)
        with write_lock(tmp_path), RawConnection(agent) as connection:
            connection.socket.settimeout(0.5)
            with pytest.raises(socket.timeout):
                connection.send(one * 1_000_000)
        assert memory.peak() < ALLOWED / 4
