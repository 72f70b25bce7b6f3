"""Two agents that must answer alike: one with the short way, and one without."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.kits.agents.agent import Agent
from tests.kits.web.connection import RawConnection

PASSWORDS = ("--password", "secret", "--ingest-password", "secret")

_STREAM = "text/event-stream; charset=utf-8"
_LAST = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# Ids of messages and times.
_VARYING = re.compile(
    rb'"(?:id|txn|begin|commit)":"[0-9a-f]{19,40}"|"records":\[[^]]*\]|transaction \d{19}'
    rb'|"id":"[0-9a-f]{24}(?:[0-9a-f]{16})?"|"(?:publishTimestamp|sequenceId)":\d+'
    rb"|\d{4}-\d\d-\d\dT[\d:.]+Z"
)


class LongAgent(Agent):
    """An agent whose app answers every request."""

    program = (
        "-c",
        "from oplogd.web.connection.short_way import ShortWayProtocol\n"
        "ShortWayProtocol._take_short_way = lambda self: False\n"
        "from oplogd.cli import main\n"
        "main()",
    )


class Seen(NamedTuple):
    """What a client saw of a request and of the end of its connection."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    rest: list[bytes]


class Pair:
    """Two agents that get the same requests, until the end of ``with``."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self._stack = ExitStack()
        self.agents = []
        for kind in (Agent, LongAgent):
            self.folder = folder / kind.__name__
            self.folder.mkdir()
            agent = self._stack.enter_context(kind(self.folder, *flags))
            header = {"Authorization": "Basic OnNlY3JldA=="}
            made = agent.request("PUT", "/v1/namespaces/shop/topics/a", {}, header)
            assert made.status == 200, made.body
            self.agents.append(agent)

    def ask(self, *packets: bytes) -> Seen:
        """Send a request to both, check that their answers are equal, and return one."""
        short, long = (_ask(agent, packets) for agent in self.agents)
        assert short == long, packets
        return short

    def open(self, *packets: bytes) -> Seen:
        """Ask for a stream, and do as ``ask``. Of a stream only the head is read."""
        short, long = (_ask(agent, packets, is_open=True) for agent in self.agents)
        assert short == long, packets
        return short

    def figures(self) -> list[dict[str, Any]]:
        """Return the counters of both: not the figures that are a moment old."""
        names = (
            "events_", "bodies_", "passwords_", "messages_", "publishes", "polls", "connections",
            "consumers_refused",
        )  # fmt: skip
        header = {"Authorization": "Basic OnNlY3JldA=="}
        told = [agent.request("GET", "/status", headers=header).json for agent in self.agents]
        return [
            {k: v for k, v in (each | each["topics"]).items() if k.startswith(names)}
            for each in told
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _ask(agent: Agent, packets: Sequence[bytes], *, is_open: bool = False) -> Seen:
    with RawConnection(agent) as connection:
        status, headers, body = connection.send(*packets).reply()
        rest: list[bytes]
        try:
            if is_open and headers.get("content-type") == _STREAM:
                return Seen(status, _kept(headers), body, [])
            rest = connection.send(_LAST).rest().splitlines()
        except ConnectionError:  # it has ended
            rest = []
    last = [line for line in rest if not line.startswith((b"date", b"oplog-store"))]
    return Seen(status, _kept(headers), _VARYING.sub(b"", body), last)


def _kept(headers: dict[str, str]) -> list[tuple[str, str]]:
    """Return the headers in their order, those that vary without their values."""
    varying = ("date", "location", "oplog-store")
    return [(name, "" if name in varying else value) for name, value in headers.items()]
