"""An agent whose file descriptors run out: it says so, and serves the connections that it has."""

import http.client
import json
import resource
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.integration.relay.tls_files import certificate
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.web.connection import RawConnection

LIMIT = 120


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


def is_refused(client: RawConnection) -> None:
    reply = client.reply()
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert reply.problem() == "the agent has too many connections; try again later"


def test_connections_beyond_the_limit_are_refused_and_polls_and_streams_go_on(
    tmp_path: Path,
) -> None:
    with Agent(tmp_path) as agent, ExitStack() as stack:
        topic = Topic(agent).create()
        topic.publish("a")
        poller, operator = (stack.enter_context(RawConnection(agent)) for _ in range(2))
        operator.send(get("/live")).reply()
        stream = stack.enter_context(topic.stream("0"))
        _, hard = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (LIMIT, hard))
        clients = [stack.enter_context(RawConnection(agent)) for _ in range(2 * LIMIT)]
        is_refused(clients[-1])  # the agent takes connections in order
        refused = operator.send(get("/status")).reply().json["connections_refused"]
        assert LIMIT < refused < 2 * LIMIT
        for client in clients[-refused:-1]:
            is_refused(client)
        for client in clients[:-refused]:
            assert client.send(get("/live")).reply().status == 200
        status = operator.send(get("/status")).reply().json
        assert status["connections_refused"] == refused
        assert status["descriptors"]["limit"] == LIMIT
        assert LIMIT * 3 // 4 <= status["descriptors"]["open"] < LIMIT
        metrics = operator.send(get("/metrics")).reply().body.decode()
        assert f"oplog_connections_refused_total {refused}.0\n" in metrics
        poll = f"POST {topic.path}/poll HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        answer = poller.send(poll.encode() + b"Content-Length: 2\r\n\r\n{}").reply()
        assert (answer.status, answer.json[0]["payload"]) == (200, "a")
        assert len(stream.take(1)) == 1
        assert agent.text().count("closing new connections") == 1


def test_connections_without_a_tls_handshake_are_noticed(tmp_path: Path) -> None:
    tls = certificate(tmp_path, "agent")
    flags = ("--tls-certificate", str(tls.certificate), "--tls-key", str(tls.key))
    with Agent(tmp_path, *flags) as agent, ExitStack() as stack:
        context = ssl.create_default_context(cafile=str(tls.certificate))
        operator = http.client.HTTPSConnection("127.0.0.1", agent.port, context=context)
        stack.callback(operator.close)

        def status() -> Any:
            operator.request("GET", "/status")
            return json.loads(operator.getresponse().read())

        assert status()["status"] == "OK"
        _, hard = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (LIMIT, hard))
        for _ in range(2 * LIMIT):
            stack.enter_context(RawConnection(agent))
        agent.wait_log("no file descriptor is free: the system closes new connections")
        assert status()["descriptors"] == {"open": LIMIT, "limit": LIMIT}
