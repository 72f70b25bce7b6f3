"""An HTTP server that answers as a test says, and keeps the requests."""

import asyncio
import enum
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence

from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.request import Request, read_body, read_head
from tests.kits.servers.server import Server


class End(enum.Enum):
    HOLD = "wait until the client closes the connection"


# Raw bytes, or pieces that are sent one by one. None closes the connection.
Reply = bytes | End | Sequence[bytes | End] | None
Replies = Sequence[Reply]
COUNT = "%COUNT%"


def answer(status: str | int, body: str | bytes = "", *headers: str) -> bytes:
    """Return an answer in JSON. The body ``COUNT`` becomes the agent's answer to a batch."""
    lines = [f"HTTP/1.1 {status}", *headers, "Content-Type: application/json"]
    if body == COUNT:
        return "\r\n".join([*lines, "Connection: close", "", COUNT]).encode()
    raw = body.encode() if isinstance(body, str) else body
    return "\r\n".join([*lines, f"Content-Length: {len(raw)}", "", ""]).encode() + raw


class ScriptedServer(Server):
    """``answers``: one for each request, and the last one for all others; or a function.

    The function runs in a thread, so it may wait.
    """

    def __init__(
        self, answers: Replies | Callable[[Request], Reply], tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(self._serve_client, tls)
        self._answers = answers if callable(answers) else list(answers)
        self._changed = threading.Condition()
        self.requests: list[Request] = []
        # Bodies of the requests that were answered with 200.
        self.accepted: list[bytes] = []
        # Ports of the clients.
        self.connections: set[int] = set()

    @property
    def heads(self) -> list[str]:
        return [request.head for request in self.requests]

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]

    def answer_with(self, *answers: Reply) -> None:
        """Replace the answers that are left."""
        self._answers = list(answers)

    def wait_requests(self, count: int) -> None:
        """Wait until the server has this number of requests."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, DEADLINE), (
                f"{len(self.requests)} of {count} requests"
            )

    async def respond(self, request: Request) -> Reply:
        """Choose the answer to a request."""
        if callable(self._answers):
            return await asyncio.to_thread(self._answers, request)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            request = await read_head(reader)
            request.body = await read_body(reader, request.headers)
            with self._changed:
                self.connections.add(writer.get_extra_info("peername")[1])
                self.requests.append(request)
                self._changed.notify_all()
            reply = await self.respond(request)
            if reply is None:
                return
            if not await self._send(request, reply, reader, writer):
                writer.close()
                await writer.wait_closed()
                return

    async def _send(
        self,
        request: Request,
        reply: bytes | End | Sequence[bytes | End],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Return whether the connection stays open."""
        pieces = [reply] if isinstance(reply, bytes | End) else reply
        sent = b""
        for piece in pieces:
            if isinstance(piece, End):
                await reader.read()
                return False
            if piece.startswith(b"HTTP/1.1 200"):
                self.accepted.append(request.body)
            count = b'{"ingested":%d}' % (request.body.count(b"\n") + 1)
            piece = piece.replace(COUNT.encode(), count)
            sent = sent or piece
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        closing = b"connection: close" in sent.lower()
        return not closing and request.headers.get("connection", "").lower() != "close"


class ModelServer(ScriptedServer):
    """Answers the first requests of a verb as planned, and the others as a model of an agent.

    ``repeat``: the last planned answer is repeated.
    """

    def __init__(self, planned: Mapping[str, Replies], *, repeat: bool = False) -> None:
        super().__init__([])
        self._planned = {verb: [*answers] for verb, answers in planned.items()}
        self._repeat = repeat
        self._held: set[str] = set()
        self._released = asyncio.Event()

    @property
    def calls(self) -> list[str]:
        """Return the verb of each request."""
        return [request.verb for request in self.requests]

    def hold(self, *verbs: str) -> None:
        """Answer requests with these verbs after ``release``."""
        self._held.update(verbs)

    def release(self) -> None:
        self._held.clear()
        self._loop.call_soon_threadsafe(self._released.set)

    async def respond(self, request: Request) -> Reply:
        if request.verb in self._held:
            await self._released.wait()
        planned = self._planned.get(request.verb)
        if not planned:
            return self.answer_well(request)
        return planned[0] if self._repeat and len(planned) == 1 else planned.pop(0)

    def answer_well(self, request: Request) -> bytes:
        """Answer as an agent."""
        raise NotImplementedError
