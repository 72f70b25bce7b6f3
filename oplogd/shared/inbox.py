"""Messages between processes that work as one: notices to all, and questions with their answers.

Each process has an inbox, a datagram socket. A long body goes as a file in memory.
"""

import asyncio
import logging
import os
import secrets
import socket
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Literal

import msgspec

from oplogd.clock import SYSTEM, Clock

# After this time a process without an answer is silent.
ANSWER_SECONDS = 1.0

# A longer body goes as a file in memory: few large datagrams fill an inbox.
_INLINE_BYTES = 1024
_DATAGRAM_BYTES = 32 * 1024

# Time between two attempts to send to a full inbox.
_RETRY_SECONDS = 0.005

# Messages read in one turn of the loop.
_PER_TURN = 64

# Questions answered at a time. More are dropped, so that a process asks again later.
_MAX_ANSWERING = 64

logger = logging.getLogger("oplogd.inbox")

# Gets the number of the sender and the body.
OnNotice = Callable[[int, bytes], None]
# Gets the body of a question. Returns the body of the answer.
Answerer = Callable[[bytes], Awaitable[bytes]]


class _Message(msgspec.Struct, array_like=True):
    """``question``: the number of the question, 0 for a notice."""

    form: Literal["notice", "question", "answer"]
    kind: str
    sender: int
    question: int
    body: bytes


_decode = msgspec.msgpack.Decoder(_Message).decode
_encode = msgspec.msgpack.Encoder().encode


class Mailboxes:
    """The sockets of all inboxes, made before the fork. Whoever made them keeps them.

    So a process that replaces another one finds its inbox. ``count`` 1: there are none.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        if count > 1:
            kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
            self._pairs = [socket.socketpair(socket.AF_UNIX, kind) for _ in range(count)]
        # Closes the sockets, at the latest with this object.
        self.close = weakref.finalize(self, _close, self._pairs)
        self.close.atexit = False

    def receiving(self, number: int) -> socket.socket:
        return self._pairs[number][0]

    def sending(self, number: int) -> socket.socket:
        return self._pairs[number][1]

    def empty(self, number: int) -> None:
        """Drop the messages to a process that has died."""
        with suppress(BlockingIOError, IndexError):
            while True:
                self._pairs[number][0].recv(1)


def _close(pairs: Iterable[tuple[socket.socket, socket.socket]]) -> None:
    for pair in pairs:
        for each in pair:
            each.close()


class _Question:
    """``waiting``: the processes without an answer."""

    def __init__(self, waiting: set[int]) -> None:
        self.waiting = waiting
        self.answers: dict[int, bytes] = {}
        self.complete = asyncio.Event()

    def add(self, sender: int, body: bytes) -> None:
        if sender in self.waiting:
            self.waiting.discard(sender)
            self.answers[sender] = body
        self.check()

    def check(self) -> None:
        if not self.waiting:
            self.complete.set()


class Inbox:
    """The inbox of one process. A full inbox loses notices. Questions and answers wait for room.

    Call ``on`` and ``answer`` once for each kind of message, then ``start``.
    """

    def __init__(self, mailboxes: Mailboxes, number: int, clock: Clock = SYSTEM) -> None:
        self._mailboxes = mailboxes
        self._number = number
        self._clock = clock
        self._notices: dict[str, OnNotice] = {}
        self._answerers: dict[str, Answerer] = {}
        self._questions: dict[int, _Question] = {}
        self._answering: set[asyncio.Task[None]] = set()
        # An answer to a question of an earlier process in this place must not fit.
        self._last_question = secrets.randbits(48)

    @property
    def others(self) -> Collection[int]:
        """The numbers of all other processes."""
        return [each for each in range(self._mailboxes.count) if each != self._number]

    def on(self, kind: str, handler: OnNotice) -> None:
        """Set the handler of notices of a kind."""
        self._notices[kind] = handler

    def answer(self, kind: str, answerer: Answerer) -> None:
        """Set the function that answers questions of a kind."""
        self._answerers[kind] = answerer

    def start(self) -> None:
        """Begin to read messages."""
        if self._mailboxes.count > 1:
            sock = self._mailboxes.receiving(self._number)
            asyncio.get_running_loop().add_reader(sock, self._read, sock)

    async def stop(self) -> None:
        """Read no more messages. The sockets stay open."""
        if self._mailboxes.count > 1:
            sock = self._mailboxes.receiving(self._number)
            asyncio.get_running_loop().remove_reader(sock)
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def broadcast(self, kind: str, body: bytes) -> None:
        """Send a notice to all other processes."""
        for other in self.others:
            self._send(other, _Message("notice", kind, self._number, 0, body))

    async def ask(
        self,
        kind: str,
        body: bytes = b"",
        others: Iterable[int] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> dict[int, bytes]:
        """Ask other processes, by default all. Return the answers by number.

        Silent processes are missing.
        """
        self._last_question += 1
        number = self._last_question
        message = _Message("question", kind, self._number, number, body)
        asked = self.others if others is None else others
        question = _Question(set(asked))
        if not question.waiting:
            return {}
        self._questions[number] = question
        late = [
            asyncio.create_task(self._deliver(each, message), name="question")
            for each in tuple(question.waiting)
            if not self._send(each, message)
        ]
        ends = [
            asyncio.ensure_future(question.complete.wait()),
            asyncio.ensure_future(self._clock.sleep(seconds)),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._questions[number]
            for end in (*ends, *late):
                end.cancel()
        return question.answers

    async def _deliver(self, other: int, message: _Message) -> None:
        """Send a message as soon as the inbox has room, if that is within ANSWER_SECONDS."""
        for _ in range(int(ANSWER_SECONDS / _RETRY_SECONDS)):
            await asyncio.sleep(_RETRY_SECONDS)
            if self._send(other, message):
                return

    def _send(self, other: int, message: _Message) -> bool:
        """Send a message. Return whether the inbox had room."""
        sock, body = self._mailboxes.sending(other), message.body
        try:
            if len(body) <= _INLINE_BYTES:
                sock.send(_encode(message))
            else:
                _send_file(sock, message)
        except OSError as error:  # it is full, or no descriptor is free
            logger.debug("process %d takes no message: %s", other, error)
            return False
        return True

    def _read(self, sock: socket.socket) -> None:
        for _ in range(_PER_TURN):
            try:
                data, files, _, _ = socket.recv_fds(
                    sock, _DATAGRAM_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError as error:
                logger.error("cannot read messages of other processes: %s", error)
                return
            try:
                message = _decode(data)
                if files:
                    message.body = _content(files[0])
                self._handle(message)
            except Exception as error:
                logger.error("a message of another process failed", exc_info=error)
            finally:
                for file in files:
                    os.close(file)

    def _handle(self, message: _Message) -> None:
        match message.form:
            case "notice":
                if handler := self._notices.get(message.kind):
                    handler(message.sender, message.body)
            case "answer":
                if question := self._questions.get(message.question):
                    question.add(message.sender, message.body)
            case "question":
                answerer = self._answerers.get(message.kind)
                if answerer is not None and len(self._answering) < _MAX_ANSWERING:
                    task = asyncio.create_task(self._answer(answerer, message), name="answer")
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)

    async def _answer(self, answerer: Answerer, asked: _Message) -> None:
        try:
            body = await answerer(asked.body)
        except Exception as error:
            logger.error("a question of another process failed", exc_info=error)
            return
        answer = _Message("answer", asked.kind, self._number, asked.question, body)
        if not self._send(asked.sender, answer):
            await self._deliver(asked.sender, answer)


def _send_file(sock: socket.socket, message: _Message) -> None:
    """Send a message whose body is in a file. Raises OSError."""
    file = os.memfd_create("message")
    try:
        with open(file, "wb", closefd=False) as writing:
            writing.write(message.body)
        socket.send_fds(sock, [_encode(msgspec.structs.replace(message, body=b""))], [file])
    finally:
        os.close(file)


def _content(file: int) -> bytes:
    with open(file, "rb", closefd=False) as reading:
        reading.seek(0)
        return reading.read()
