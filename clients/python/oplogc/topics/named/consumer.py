"""Readers of named consumers: for threads and for asyncio."""

import asyncio
import sys
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import NoReturn, Self

from oplogc.follow.wake_up import check_no_loop
from oplogc.http.backoff import BACKOFF
from oplogc.http.token import Token
from oplogc.process.forks import after_fork
from oplogc.process.loop_thread import LoopThread
from oplogc.topics.named.reader import NamedEvent, NamedReader


class NamedConsumer(NamedReader):
    """Read one shard of a named consumer with ``for``. Use it in a ``with`` statement.

    Operations, ``Reset`` and ``Live`` of the oplog, or messages and ``Reset`` of a topic. The agent
    keeps the position. An event is acknowledged when the loop asks for the next one, so each event
    is handled at least once. The event in hand at a ``break``, a ``return`` or an exception comes
    again: end with ``stop``, or ``ack`` it before. Iterating takes the shard from its last reader,
    and begins where that one has acknowledged. After a lost connection it goes on.

    - ``url``: an agent, or a list of agents on the same store, to be asked in turn.
    - ``name``: of the consumer: see ``Topics.create_consumer``. ``shard``: number of the shard.
    - ``ack_seconds``: between two acknowledgements. They are sent in a thread of their own, and at
      the end. 0: acknowledge each event, and wait for the confirmation before the next one.
    - The other arguments are those of ``oplogc.Consumer``. Two threads call a function for a token.

    Raises ValueError for a bad argument. Iterating raises StaleTermError when another reader has
    taken the shard or it was moved, RefusedError if there is no such consumer, NotAllowed, other
    RefusedError, and ProtocolError.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        name: str,
        *,
        shard: int = 0,
        ack_seconds: float = 1.0,
        password: str | None = None,
        token: Token | None = None,
        proxy: str | None = None,
        timeout: float = 10.0,
        heartbeat_timeout: float = 40.0,
        backoff: tuple[float, float] = BACKOFF,
    ) -> None:
        super().__init__(
            url, name, shard, ack_seconds, password, token, proxy, timeout, heartbeat_timeout,
            backoff,
        )  # fmt: skip
        self._thread = LoopThread("oplogc-ack")
        self._is_lost = False

    def __iter__(self) -> Generator[NamedEvent]:
        check_no_loop("AsyncNamedConsumer")
        self._check_process()
        after_fork(self, NamedConsumer._lose)
        self._give_back()  # of a loop that is still open
        self._thread.start(self._acknowledger.run)
        try:
            with closing(super().__iter__()) as events:
                for event in events:
                    self._in_hand = event
                    yield event
                    self._check_process()
                    self._done()
            self._check()
        finally:
            self._give_back()
            self._flush()

    def close(self) -> None:
        """Send the last acknowledgement, and end. A failure is logged: events may come again."""
        self.stop()
        self._flush()
        if self._thread.is_running:
            self._thread.call(self._acknowledger.aclose())
        self._thread.end()

    def _flush(self) -> None:
        # At the end of the interpreter no other thread runs.
        if self._thread.is_running and not sys.is_finalizing():
            self._thread.call(self._acknowledger.end())

    def _lose(self) -> None:
        self._is_lost = True

    def _check_process(self) -> None:
        """Raise ValueError in the child of a fork: the thread and the stream are the parent's."""
        if self._is_lost:
            raise ValueError(
                "the child of a fork cannot use its parent's consumer: make another one"
            )

    async def _confirm(self) -> bool:
        attempt = self._acknowledger.attempt()
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(attempt, self._thread.start(self._acknowledger.run))
        )

    def __aiter__(self) -> NoReturn:
        raise TypeError("use AsyncNamedConsumer with async for")

    async def __aenter__(self) -> NoReturn:
        raise TypeError("use AsyncNamedConsumer with async with")


class AsyncNamedConsumer(NamedReader):
    """Read one shard of a named consumer with ``async for``. Use it with ``async with``.

    From one event loop. See ``NamedConsumer``: the arguments and errors are the same. The
    acknowledgements are sent in a task of their own.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        name: str,
        *,
        shard: int = 0,
        ack_seconds: float = 1.0,
        password: str | None = None,
        token: Token | None = None,
        proxy: str | None = None,
        timeout: float = 10.0,
        heartbeat_timeout: float = 40.0,
        backoff: tuple[float, float] = BACKOFF,
    ) -> None:
        super().__init__(
            url, name, shard, ack_seconds, password, token, proxy, timeout, heartbeat_timeout,
            backoff,
        )  # fmt: skip
        self._acknowledging: asyncio.Task[None] | None = None

    def __aiter__(self) -> Self:
        """Begin a loop. The event at which the loop before broke off is its first one."""
        self._give_back()
        return self

    async def __anext__(self) -> NamedEvent:
        """Return the next event. The one before is handled. A cancelled call loses no event."""
        self._done()
        if self._acknowledging is None:
            self._acknowledging = asyncio.create_task(self._acknowledger.run(), name="oplogc-ack")
        try:
            self._in_hand = await super().__anext__()
        except StopAsyncIteration:
            self._check()
            await self._acknowledger.end()
            raise
        return self._in_hand

    async def aclose(self) -> None:
        """Send the last acknowledgement, and end. A failure is logged: events may come again."""
        self.stop()
        try:
            await super().aclose()
            await self._acknowledger.end()
        finally:
            task, self._acknowledging = self._acknowledging, None
            if task is not None:
                task.cancel()
            await self._acknowledger.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def _confirm(self) -> bool:
        return await self._acknowledger.attempt()

    def __iter__(self) -> NoReturn:
        raise TypeError("use NamedConsumer with for")

    def __enter__(self) -> NoReturn:
        raise TypeError("use NamedConsumer with with")
