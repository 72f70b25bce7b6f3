"""Servers that answer as a test says."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.kits.proxies.chaos import ChaosProxy as ChaosProxy

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Server:
    """A TCP server in a thread of its own, on a free port of 127.0.0.1."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = 0
        self._thread = threading.Thread(target=self._run)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stop = self._stop
        assert stop is not None
        self._loop.call_soon_threadsafe(stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        # Closed only when nothing is under way: asyncio cannot finish accepting a connection for a
        # closed server, and leaves its socket open.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(others)
        server.close()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._handle(reader, writer))
        self._tasks.add(task)
        # Not `finally` in the task: one that is cancelled before its first step runs nothing.
        task.add_done_callback(lambda _: writer.transport.abort())
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._handler(reader, writer)


class ScriptedAgent(Server):
    """Answers POSTs one after another with what ``answers`` says: raw bytes, or None to hang up
    without one.

    The last answer is repeated. ``heads`` and ``bodies`` are those of the requests, in order.
    """

    def __init__(self, answers: Sequence[bytes | None]) -> None:
        super().__init__(self._answer)
        self._answers = list(answers)
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.accepted: list[bytes] = []
        """Of these bodies those that were answered with 200."""

    def answer_with(self, *answers: bytes) -> None:
        """From now on."""
        self._answers = list(answers)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line.partition(b":")[2])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ),
                0,
            )
            body = await reader.readexactly(length)
            self.heads.append(head.decode())
            self.bodies.append(body)
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            if answer is None:
                return
            if answer.startswith(b"HTTP/1.1 200"):
                self.accepted.append(body)
            writer.write(answer.replace(b"%COUNT%", b'{"ingested":%d}' % (body.count(b"\n") + 1)))
            await writer.drain()
            if b"Connection: close" in answer or b"connection: close" in head.lower():
                writer.close()
                await writer.wait_closed()
                return


def answer(status: str, body: str = "", *headers: str) -> bytes:
    """An HTTP answer. ``%COUNT%`` as the body becomes what an agent says to a batch."""
    lines = [f"HTTP/1.1 {status}", *headers, "Content-Type: application/json"]
    if body == "%COUNT%":
        return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n%COUNT%").encode()
    return ("\r\n".join([*lines, f"Content-Length: {len(body)}"]) + "\r\n\r\n" + body).encode()
