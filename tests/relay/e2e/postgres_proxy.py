"""A proxy before PostgreSQL that loses single statements or their answers."""

import asyncio
import threading
from contextlib import suppress
from enum import Enum, auto

from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.server import Server

_STARTUP = 8  # bytes before a startup message's parameters: its length and its version
_PARSE, _BIND, _QUERY, _SYNC, _READY = b"P", b"B", b"Q", b"S", b"Z"


class StatementFault(Enum):
    # The server carries the statement out, and the connection ends before the answer.
    LOSE_ANSWER = auto()
    # The connection ends before the server gets the statement.
    LOSE_STATEMENT = auto()


class PostgresProxy(Server):
    """Passes messages on between the clients of a server, which must not encrypt them.

    ``cut``: connections end, and new ones end at once. ``met``: statements that met a fault.
    """

    def __init__(self, port: int) -> None:
        super().__init__(self._serve_client)
        self.target = port
        self.met = 0
        self._changed = threading.Condition()
        self._fault: StatementFault | None = None
        self._words: list[str] = []
        self._connections: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    def disturb(self, fault: StatementFault, *words: str) -> None:
        """Let statements meet a fault: the next with the first word in its text, in any case.

        Then the next one with the second word, and so on.
        """
        with self._changed:
            self._fault, self._words, self.met = fault, [word.lower() for word in words], 0

    def wait_met(self, times: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.met >= times, DEADLINE), (
                f"{self.met} of {times} statements met a fault; left: {self._words}"
            )

    def cut(self) -> None:
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._abort_all)

    def mend(self) -> None:
        self._is_cut = False

    def _abort_all(self) -> None:
        for writer in self._connections:
            writer.transport.abort()

    def _meets(self, texts: list[str]) -> StatementFault | None:
        with self._changed:
            if self._words and any(self._words[0] in text for text in texts):
                del self._words[0]
                return self._fault
        return None

    def _note(self) -> None:
        with self._changed:
            self.met += 1
            self._changed.notify_all()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._is_cut:
            return
        from_server, server = await asyncio.open_connection("127.0.0.1", self.target)
        self._connections.add(writer)
        connection = _Connection(from_server, writer)
        answers = asyncio.create_task(connection.pass_answers_on())
        try:
            head = await reader.readexactly(_STARTUP)
            server.write(head + await reader.readexactly(int.from_bytes(head[:4]) - _STARTUP))
            while True:
                messages, texts = await _statement(reader, connection.prepared)
                fault = self._meets(texts)
                if fault is StatementFault.LOSE_STATEMENT:
                    self._note()
                    return
                if fault is StatementFault.LOSE_ANSWER:
                    connection.loses = True
                server.write(messages)
                await server.drain()
                if fault is StatementFault.LOSE_ANSWER:
                    await answers
                    self._note()
                    return
        finally:
            self._connections.discard(writer)
            answers.cancel()
            with suppress(asyncio.CancelledError, OSError, asyncio.IncompleteReadError):
                await answers
            server.transport.abort()


class _Connection:
    def __init__(self, from_server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._from_server = from_server
        self._client = client
        self.prepared: dict[bytes, str] = {}
        self.loses = False

    async def pass_answers_on(self) -> None:
        """Return after the whole answer that is lost, or at the end of the connection."""
        try:
            while True:
                kind, message = await _message(self._from_server)
                if not self.loses:
                    self._client.write(message)
                    await self._client.drain()
                elif kind == _READY:
                    return
        except asyncio.IncompleteReadError:
            self._client.transport.abort()


async def _statement(
    reader: asyncio.StreamReader, prepared: dict[bytes, str]
) -> tuple[bytes, list[str]]:
    """Return messages up to the next one that the server answers, and the texts of statements."""
    messages, texts = b"", []
    while True:
        kind, message = await _message(reader)
        messages += message
        if kind == _PARSE:
            name, text, _ = message[5:].split(b"\0", 2)
            prepared[name] = text.decode().lower()
        elif kind == _BIND:
            _, name, _ = message[5:].split(b"\0", 2)
            texts.append(prepared[name])
        elif kind == _QUERY:
            texts.append(message[5:].decode().lower())
            return messages, texts
        elif kind not in (b"D", b"E", b"C", b"H"):
            return messages, texts


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
