"""The memory of a connected consumer that waits, counted by Python and not by the machine."""

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.web.connection import RawConnection

CONSUMERS = 200

# Half of an idle stream of a bare uvicorn application. Measured: 3.6, with a filter of
# its own 5.1 KiB.
MOST_KIB = 5
MOST_KIB_WITH_OWN_FILTER = 7
# Those that the garbage collector visits.
MOST_OBJECTS = 35

_TOPIC = "/v1/namespaces/bench/topics/idle"


class Had(NamedTuple):
    """``garbage``: objects that only the collector could free, found now."""

    bytes: int
    objects: int
    garbage: int


class TracedAgent(Agent):
    program = ("-m", "tests.integration.web.traced_agent")
    _told = 0

    def has(self) -> Had:
        self.process.send_signal(signal.SIGUSR1)
        self._told += 1
        return Had(*map(int, re.findall(r"\d+", self.wait_log("traced ", self._told))))


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedAgent]:
    with TracedAgent(tmp_path_factory.mktemp("agent")) as agent:
        assert agent.request("PUT", _TOPIC).status < 300
        yield agent


@pytest.mark.parametrize(
    ("path", "kib"),
    [
        ("/ops", MOST_KIB),
        ("/ops?types=video&parents=user/x3kd2", MOST_KIB),
        ("/ops?types=own{}", MOST_KIB_WITH_OWN_FILTER),
        (f"{_TOPIC}/stream?checkpoint=1", MOST_KIB),
    ],
    ids=["operations", "one filter", "a filter each", "topic"],
)
def test_a_waiting_consumer_takes_little_more_than_its_connection(
    traced: TracedAgent, path: str, kib: float
) -> None:
    with ExitStack() as stack:
        connect(traced, stack, path, CONSUMERS // 2)
        before = traced.has()
        connect(traced, stack, path, CONSUMERS)
        after = traced.has()
    assert (after.bytes - before.bytes) / CONSUMERS < kib * 1024
    assert (after.objects - before.objects) / CONSUMERS < MOST_OBJECTS
    traced.wait_status(clients=0)


@pytest.mark.parametrize(
    "headers",
    ["HTTP/1.1\r\n", "HTTP/1.0\r\n", "HTTP/1.1\r\nConnection: close\r\n"],
    ids=["kept open", "HTTP/1.0", "close"],
)
def test_consumers_that_have_gone_leave_nothing_to_the_garbage_collector(
    traced: TracedAgent, headers: str
) -> None:
    with ExitStack() as stack:
        connect(traced, stack, "/ops", CONSUMERS, headers)
        traced.has()
    traced.wait_status(clients=0)
    assert traced.has().garbage < CONSUMERS


def connect(
    agent: TracedAgent,
    stack: ExitStack,
    path: str,
    count: int,
    headers: str = "HTTP/1.1\r\n",
) -> None:
    """Connect consumers, and wait until their streams have begun."""
    connected = agent.status()["clients"]
    for number in range(connected, connected + count):
        connection = stack.enter_context(RawConnection(agent))
        connection.send(
            b"GET %s %bHost: localhost\r\nUser-Agent: test/1.0\r\n"
            b"Accept: text/event-stream\r\nCache-Control: no-cache\r\n\r\n"
            % (path.format(number).encode(), headers.encode())
        )
        assert connection.reply().status == 200
