"""A transaction from an event loop."""

import asyncio
from datetime import datetime
from typing import Self

from oplogc.topics.calls.transactions import Committed
from oplogc.topics.messages.records import Writable, content
from oplogc.topics.transactions.core import TransactionCore


class AsyncTransaction:
    """Records for committed readers: visible together, or never.

    Made by ``AsyncTopics.transaction``. Use it with ``async with``: leaving the block commits, an
    exception aborts and is raised again. In the block ``commit`` and ``abort`` end it earlier.

    Records are written in the background. A request whose answer was lost is sent again, at the
    next agent if there are several: each record is stored once.
    """

    def __init__(self, core: TransactionCore) -> None:
        self.core = core
        """The part common to asyncio and threads."""
        self._turn = asyncio.Lock()

    @property
    def id(self) -> str:
        """The transaction's id, a number. Empty before the block."""
        return self.core.id

    @property
    def expires_at(self) -> datetime:
        """Time after which nothing commits, by the agent's clock."""
        return self.core.expires_at

    async def write(self, topic: str, message: Writable) -> "asyncio.Future[str | None]":
        """Write a record with the next lsn. Wait for room in the buffer.

        ``message``: as for ``publish``. For ``system/oplog`` an operation as a mapping of event,
        type, id, parents and timestamp, or as JSON text.

        The future has the record's id after the commit. None: the topic was deleted before. It
        raises TransactionError if the transaction does not commit, and OutcomeUnknownError. Do not
        wait for it in the block: the commit comes later.

        Raises ValueError, MessageError and OperationError, after which the transaction may go on,
        and TransactionError if the transaction cannot commit.
        """
        raw = content(topic, message)
        async with self._turn:  # in the order of the calls
            await self.core.wait_for_room(len(raw))
            future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            self.core.enter(raw, future)
        return future

    async def commit(self) -> Committed:
        """Commit all records. A repeated call returns the same.

        Raises TransactionError if the transaction does not commit, and OutcomeUnknownError if no
        agent has confirmed the commit ``retry_for`` seconds after the transaction's time-out.
        """
        return await self.core.commit()

    async def abort(self) -> None:
        """Abort the transaction, and fail the futures.

        If no agent answers within some seconds, the agents abort it when its time is over. Raises
        ValueError if the transaction is committed, and OutcomeUnknownError.
        """
        await self.core.abort("it was aborted")

    async def __aenter__(self) -> Self:
        await self.core.begin()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.core.is_ending:
            return
        if error is None:
            await self.core.commit()
        else:
            await self.core.abort(f"{type(error).__name__} in its block")
