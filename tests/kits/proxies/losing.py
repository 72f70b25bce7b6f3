"""A proxy before an agent that loses an answer, or keeps a request back until it is released."""

import asyncio
import http.client
import json
import threading
from collections.abc import Mapping
from typing import Any

from tests.kits.agents.agent import DEADLINE, Agent, Answer
from tests.kits.servers.server import Server


class LosingProxy(Server):
    """Passes one request on for each connection. ``path``: of a request to treat as is said."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(self._pass_on)
        self._agent = agent
        self._arrived = threading.Event()
        self._released = threading.Event()
        self._is_losing = False
        self._is_holding = False

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request through the proxy. Raises RemoteDisconnected if its answer is lost."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            sent = {"Content-Type": "application/json", "Connection": "close", **(headers or {})}
            connection.request(method, path, json.dumps(body).encode(), sent)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def lose_next(self) -> None:
        """Let the agent answer the next request, and tell its client nothing."""
        self._is_losing = True

    def hold_next(self) -> None:
        """Keep the next request back, whole, until ``release``."""
        self._is_holding = True

    def wait_held(self) -> None:
        assert self._arrived.wait(DEADLINE), "no request came"

    def release(self) -> None:
        self._released.set()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _whole(reader)
        is_losing, self._is_losing = self._is_losing, False
        if self._is_holding:
            self._is_holding = False
            self._arrived.set()
            await asyncio.to_thread(self._released.wait, DEADLINE)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._agent.port)
        try:
            up_writer.write(request)
            answer = await _whole(up_reader)
            if not is_losing:
                writer.write(answer)
                await writer.drain()
        finally:
            up_writer.close()


async def _whole(reader: asyncio.StreamReader) -> bytes:
    """Return a request or an answer of which the head tells the length."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    ]
    return head + await reader.readexactly(sum(lengths))
