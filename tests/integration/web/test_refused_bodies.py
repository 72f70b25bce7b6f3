"""The rest of a refused body, answers that nobody takes, and the shares of readers and writers."""

import contextlib
import json
import os
import socket
from contextlib import ExitStack
from pathlib import Path

from tests.kits.agents.agent import Agent
from tests.kits.contract.wire import wait_until
from tests.kits.web.connection import NDJSON, RawConnection, length, lines
from tests.kits.web.hostile import TOPIC
from tests.kits.web.unread import all_read

MB = 1 << 20
POLL = b"POST %s/poll HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" % TOPIC.encode()


def test_413_ends_the_connection_and_the_rest_of_the_body_is_not_read(tmp_path: Path) -> None:
    with Agent(tmp_path, "--max-body-size", "1KB") as agent:
        for begin in (b"Content-Length: 100000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
            with RawConnection(agent) as connection:
                chunk = b"2000\r\n" + b"a" * 0x2000 + b"\r\n"
                reply = connection.send(NDJSON + begin, chunk).reply()
                assert (reply.status, reply.headers["connection"]) == (413, "close")
                assert connection.rest() == b""
        with RawConnection(agent) as connection:  # complete bodies, and a request behind
            body = b" " * 2000
            connection.send(NDJSON + length(body) + body + b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.reply().status == 413
            assert connection.rest() == b""


def test_a_client_that_does_not_take_its_answers_is_cut_off(tmp_path: Path) -> None:
    with Agent(tmp_path, "--stall-timeout", "500ms") as agent:
        agent.request("PUT", TOPIC)
        messages = json.dumps({"messages": ["a" * 90_000] * 10}).encode()
        assert agent.request("POST", f"{TOPIC}/publish", messages).status == 200
        asked = POLL + length(b"{}") + b"{}"
        with RawConnection(agent) as connection:
            # A short answer: to take a long one may last longer than the time-out.
            assert connection.send(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n").reply().status == 200
            before = sockets(agent)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.send(asked * 20)
            assert wait_until(lambda: sockets(agent) < before)


def test_a_client_that_takes_nothing_of_an_answer_in_parts_is_cut_off(tmp_path: Path) -> None:
    with Agent(tmp_path, "--stall-timeout", "500ms") as agent:
        agent.request("PUT", TOPIC)
        with RawConnection(agent) as connection:
            assert connection.send(under_pointer(1)).reply().status == 200
            before = sockets(agent)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.send(under_pointer(90_000))
            assert wait_until(lambda: stored(agent) == 90_001)
            assert wait_until(lambda: sockets(agent) < before)


def test_a_client_of_http_1_0_can_read_an_answer_in_parts(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.request("PUT", TOPIC)
        for count in (1000, 1001, 2500):
            with RawConnection(agent) as connection:
                request = under_pointer(count).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
                reply = connection.send(request).reply()
                assert "transfer-encoding" not in reply.headers
                assert len(json.loads(reply.body)["messages"]) == count


def under_pointer(count: int) -> bytes:
    """Return a publish of short messages, whose answer names each of them."""
    given = {"transactionWritePointer": 7, "messages": ["a"] * count}
    body = json.dumps(given).encode()
    return POLL.replace(b"/poll ", b"/publish ", 1) + length(body) + body


def stored(agent: Agent) -> int:
    found: int = agent.status()["topics"]["messages_published"]
    return found


def sockets(agent: Agent) -> int:
    """Return the number of sockets that the agent has open."""
    found = 0
    for each in Path(f"/proc/{agent.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += os.readlink(each).startswith("socket:")
    return found


def test_polls_and_large_uploads_leave_room_for_writers(tmp_path: Path) -> None:
    with Agent(tmp_path, "--max-upload-memory", "16MB") as agent, ExitStack() as stack:
        agent.request("PUT", TOPIC)

        def hold(head: bytes, size: int) -> None:
            """Send all but the last byte of a body, and wait until the agent has read it."""
            connection = stack.enter_context(RawConnection(agent))
            connection.send(head + b"Content-Length: %d\r\n\r\n" % size, b" " * (size - 1))
            ends = connection.socket.getsockname(), connection.socket.getpeername()
            assert wait_until(lambda: all_read(*ends))

        for _ in range(2):
            hold(POLL, 2 * MB)
        assert agent.request("POST", f"{TOPIC}/poll", b'{"limit": 1}').status == 503
        large = b"\n" * (8 * MB) + lines(1)
        headers = {"Content-Type": "application/x-ndjson"}
        assert agent.request("POST", "/", large, headers).status == 200
        hold(NDJSON, 16 * MB)
        assert agent.request("POST", "/", large, headers).status == 503
        assert agent.request("POST", "/", lines(1), headers).status == 200  # from the reserve
        assert agent.status()["bodies_refused"]["no_room"] == 2
