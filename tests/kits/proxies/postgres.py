"""A proxy before PostgreSQL that loses single statements or their answers."""

import socket
from contextlib import suppress
from enum import Enum, auto
from typing import BinaryIO

from tests.kits.processes.logged import DEADLINE
from tests.kits.proxies.proxy import Proxy, end

_PARSE, _BIND, _QUERY, _READY = b"P", b"B", b"Q", b"Z"


class StatementFault(Enum):
    # The server carries the statement out, and the connection ends before the answer.
    LOSE_ANSWER = auto()
    # The connection ends before the server gets the statement.
    LOSE_STATEMENT = auto()


class PostgresProxy(Proxy):
    """Passes messages on between the clients of a server, which must not encrypt them.

    ``met``: statements that met a fault.
    """

    def __init__(self, port: int) -> None:
        self.met = 0
        self._fault: StatementFault | None = None
        self._words: list[str] = []
        super().__init__(port)

    def disturb(self, fault: StatementFault, *words: str) -> None:
        """Let statements meet a fault: the next with the first word in its text, in any case.

        Then the next one with the second word, and so on.
        """
        with self._lock:
            self._fault, self._words, self.met = fault, [word.lower() for word in words], 0

    def wait_met(self, times: int = 1) -> None:
        with self._lock:
            assert self._lock.wait_for(lambda: self.met >= times, DEADLINE), (
                f"{self.met} of {times} statements met a fault; left: {self._words}"
            )

    def _meets(self, texts: list[str]) -> StatementFault | None:
        with self._lock:
            if self._words and any(self._words[0] in text for text in texts):
                del self._words[0]
                return self._fault
        return None

    def _note(self) -> None:
        with self._lock:
            self.met += 1
            self._lock.notify_all()

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        loses = False
        prepared: dict[bytes, str] = {}

        def pass_answers_on() -> None:
            """Return after the whole answer that is lost, or at the end of the connection."""
            with suppress(OSError, EOFError), server.makefile("rb") as answers:
                while True:
                    kind, message = read_message(answers)
                    self._wait_thawed()
                    if not loses:
                        client.sendall(message)
                    elif kind == _READY:
                        return
            end(client)

        answering = self._start(pass_answers_on)
        try:
            with suppress(EOFError), client.makefile("rb") as requests:
                # A startup message has no kind.
                size = read_exactly(requests, 4)
                server.sendall(size + read_exactly(requests, int.from_bytes(size) - 4))
                while True:
                    messages, texts = _statement(requests, prepared)
                    fault = self._meets(texts)
                    if fault is StatementFault.LOSE_STATEMENT:
                        self._note()
                        return
                    loses = fault is StatementFault.LOSE_ANSWER
                    self._wait_thawed()
                    server.sendall(messages)
                    if loses:
                        answering.join()
                        self._note()
                        return
        finally:
            end(client, server)
            answering.join()


def _statement(file: BinaryIO, prepared: dict[bytes, str]) -> tuple[bytes, list[str]]:
    """Return messages up to the next one that the server answers, and the texts of statements."""
    messages, texts = b"", []
    while True:
        kind, message = read_message(file)
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


def read_message(file: BinaryIO) -> tuple[bytes, bytes]:
    """Return the kind of a message, and all of it. Raises EOFError."""
    head = read_exactly(file, 5)
    return head[:1], head + read_exactly(file, int.from_bytes(head[1:]) - 4)


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """Raises EOFError at the end of the connection."""
    received = file.read(size)
    if len(received) < size:
        raise EOFError
    return received
