"""One connection to PostgreSQL for one call at a time. A failure replaces it."""

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import psycopg

from oplog_relay.model.errors import OutboxError

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
_T = TypeVar("_T")

# Seconds for one call, the wait for earlier calls and a new connection included.
DEADLINE = 10.0


class Lane:
    """Runs calls one after another on one connection.

    A failed, cancelled or overlong call ends the connection: its state is unknown.
    The next call opens a new one.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._running: asyncio.Task[Any] | None = None
        self._busy = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def run(self, work: Callable[[Connection], Awaitable[_T]]) -> _T:
        """Return the result of ``work``. Raises OutboxError."""
        task = asyncio.create_task(self._run(work), name="outbox")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        try:
            done, _ = await asyncio.wait({task}, timeout=DEADLINE)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            raise OutboxError(f"PostgreSQL (database.url): no answer within {DEADLINE:.0f} s")
        if task.cancelled():
            raise OutboxError("the outbox is closed")
        return task.result()

    async def close(self) -> None:
        """End the connection. Calls in progress fail."""
        self._is_closed = True
        for task in self._tasks:
            self._abandon(task)
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._drop()

    async def _run(self, work: Callable[[Connection], Awaitable[_T]]) -> _T:
        async with self._busy:
            if self._is_closed:
                raise OutboxError("the outbox is closed")
            self._running = asyncio.current_task()
            try:
                if self._connection is not None and _has_ended(self._connection):
                    await self._drop()
                if self._connection is None:
                    self._connection = await self._connect()
                return await work(self._connection)
            except BaseException as error:
                await self._drop()
                if isinstance(error, psycopg.Error | OSError | UnicodeError):
                    raise OutboxError(f"PostgreSQL (database.url): {sentence(error)}") from None
                raise
            finally:
                self._running = None

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        """End a task soon. Cancelling psycopg would wait for an answer of the server."""
        if task is not self._running or self._connection is None:
            task.cancel()
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(self._connection.fileno())) as sock,
        ):
            sock.shutdown(socket.SHUT_RDWR)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # no other task looks if the call was abandoned


async def fetch(
    connection: Connection, statement: bytes, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Return the rows of a prepared statement."""
    cursor = await connection.execute(statement, parameters, prepare=True, binary=True)
    return await cursor.fetchall()


def sentence(error: Exception) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _has_ended(connection: Connection) -> bool:
    """Return whether the server or a proxy has ended an idle connection: it has data to read."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
