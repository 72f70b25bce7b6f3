"""One transaction: its records on their way, its commit, its end."""

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from typing import Self

from oplogc.process.changes import Changes
from oplogc.topics.calls import transactions as calls
from oplogc.topics.calls.agents import Agents
from oplogc.topics.calls.call import Call
from oplogc.topics.calls.transactions import Committed
from oplogc.topics.messages.batch import batches
from oplogc.topics.messages.records import Writable, content, content_size, record
from oplogc.topics.publish.publication import RecordFuture, fail, is_wanted
from oplogc.topics.publish.room import BufferRoom
from oplogc.wire.errors import OplogError, OutcomeUnknownError, TransactionError, UnavailableError

ABORT_SECONDS = 5.0  # how long an abort is tried

logger = logging.getLogger("oplogc")


class AsyncTransaction:
    """Records for committed readers: visible together, or never.

    Made by ``AsyncTopics.transaction``. Use it with ``async with``: leaving the block commits, an
    exception aborts and is raised again. In the block ``commit`` and ``abort`` end it earlier.

    Records are written in the background. A request whose answer was lost is sent again, at the
    next agent if there are several: each record is stored once.
    """

    def __init__(self, agents: Agents, begin: Call[tuple[str, datetime]], timeout: float) -> None:
        options = agents.options
        self._agents = agents
        self._begin = begin
        self._timeout = timeout
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._futures: list[RecordFuture] = []
        self._waiting: deque[bytes] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._changes = Changes()
        self._error: OplogError | None = None
        self._committed: Committed | None = None
        self._is_abort_sent = False
        self._is_closed = False
        self._ended = asyncio.Event()
        self._room = BufferRoom(options.max_buffered, options.max_buffered_bytes)
        self._id = ""
        self._expires_at = datetime.min
        self._turn = asyncio.Lock()
        self._is_ending = False  # whether it was asked to commit or to abort

    @property
    def id(self) -> str:
        """A number, empty before the block."""
        return self._id

    @property
    def expires_at(self) -> datetime:
        """Time after which nothing commits, by the agent's clock."""
        return self._expires_at

    async def __aenter__(self) -> Self:
        """Begin. Raises ValueError, and the errors of a request or AlreadyCommittedError."""
        if self.id:
            raise ValueError(f"transaction {self.id} has begun already")
        if self._is_closed:
            raise ValueError("its client is closed")
        self._id, self._expires_at = await self._agents.fetch(self._begin)
        self._until = time.monotonic() + self._timeout
        # A future awaited in the block must not wait for ever.
        self._timer = asyncio.get_running_loop().call_later(self._timeout, self._time_is_over)
        if self._is_closed:  # meanwhile
            await self._close(0.0)
            self._check()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._is_ending:
            return
        if error is None:
            await self.commit()
        else:
            await self._abort_because(f"{type(error).__name__} in its block")

    def _check(self) -> None:
        """Raise unless records may be written: why the commit is impossible, or ValueError."""
        if self._error is not None:
            raise self._error
        if not self.id:
            raise ValueError("the transaction has not begun: use it in a with block")
        if self._is_ending:
            raise ValueError(f"transaction {self.id} has ended")

    async def write(self, topic: str, message: Writable) -> "asyncio.Future[str | None]":
        """Write a record with the next lsn. Wait for room in the buffer.

        ``message``: as for ``publish``. For ``system/oplog`` an operation as a mapping of event,
        type, id, parents and timestamp, or as JSON text.

        The future has the record's id after the commit, None if the topic was deleted before. It
        raises TransactionError and OutcomeUnknownError. Do not wait for it in the block.

        Raises ValueError, MessageError and OperationError, after which the transaction may go on,
        and TransactionError if the transaction cannot commit.
        """
        raw = content(topic, message)
        async with self._turn:  # in the order of the calls
            self._check()
            await self._changes.wait_for(lambda: self._room.take(1, len(raw)))
            self._check()
            future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            self._enter(raw, future)
        return future

    def _enter(self, content: bytes, future: RecordFuture) -> None:
        """Give a record the next lsn. Its space was taken."""
        if self._error is not None or self._is_ending:
            fail(future, self._error or TransactionError(f"transaction {self.id} has ended"))
            return
        self._waiting.append(record(len(self._futures), content))
        self._futures.append(future)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name=f"oplogc-transaction {self.id}")

    async def commit(self) -> Committed:
        """Commit all records. A repeated call returns the same.

        Raises TransactionError if the transaction does not commit, and OutcomeUnknownError if no
        agent has confirmed the commit ``retry_for`` seconds after the transaction's time-out.
        """
        if self._committed is not None:
            return self._committed
        if not self.id or self._is_ending:
            self._check()
        self._end()
        is_asked = False
        try:
            if self._sending is not None:
                await asyncio.wait({self._sending})
            if self._error is None:
                if self._sending is not None:
                    self._sending.result()
                is_asked = True
                await self._commit()
            if isinstance(self._error, TransactionError):
                await self._abort()
        except BaseException:  # cancelled
            if is_asked:
                self._fail(OutcomeUnknownError(f"{self._unknown()}: cancelled before an answer"))
            else:
                self._fail(self._not_committed("cancelled"))
                await self._abort()
            raise
        finally:
            self._ended.set()
        if self._committed is None:
            assert self._error is not None
            raise self._error
        return self._committed

    def _can_abort(self) -> bool:
        """Return whether there is anything to abort. Raises the errors of ``abort``."""
        has_ended = self._is_ending or self._is_abort_sent
        if has_ended and isinstance(self._error, TransactionError):
            return False
        if has_ended or not self.id:
            self._check()
        return True

    async def abort(self) -> None:
        """Abort the transaction, and fail the futures.

        If no agent answers within some seconds, the agents abort it when its time is over. Raises
        ValueError if the transaction is committed, and OutcomeUnknownError.
        """
        await self._abort_because("it was aborted")

    async def _abort_because(self, reason: str) -> None:
        if self._can_abort():
            self._end()
            self._fail(self._not_committed(reason))
            try:
                await self._abort()
            finally:
                self._ended.set()

    async def _close(self, timeout: float | None) -> None:
        """Fail the futures and abort. The block then raises. It cannot begin any more.

        ``timeout``: seconds to wait for a commit or an abort on its way. None: until its end.
        """
        self._is_closed = True
        if self._is_ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._ended.wait()
        elif self.id:
            if self._timer is not None:
                self._timer.cancel()
            self._fail(self._not_committed("its client was closed"))
            await self._abort()

    async def _send(self) -> None:
        """Write the waiting records, one request after another."""
        first = len(self._futures) - len(self._waiting)
        while self._waiting and self._error is None:
            if time.monotonic() >= self._until:
                self._time_is_over()
                return
            batch = next(batches(self._waiting, self._agents.options.batch_size))
            for _ in batch:
                self._waiting.popleft()
            try:
                await self._agents.fetch(calls.write(self.id, batch), self._until, first)
            except Exception as error:  # also of a token function
                self._fail(self._not_committed(str(error), error))
                return
            first += len(batch)
            self._room.give(len(batch), sum(map(content_size, batch)))
            self._changes.notify()

    async def _commit(self) -> None:
        call = calls.commit(self.id, len(self._futures))
        lost = False
        until = max(self._until, time.monotonic()) + self._agents.options.retry_for
        try:
            answer, lost = await self._agents.ask(call, until)
            error: Exception | None = calls.refusal(call, answer)
            if error is None:
                lost = True
                self._committed = call.read(answer)
            elif answer.status in (409, 412):  # it was decided otherwise, or a record is missing
                lost = False
        except TransactionError as repeated:  # another one has committed its number
            return self._fail(repeated)
        except UnavailableError as unavailable:
            error, lost = unavailable, unavailable.lost
        except Exception as no_agent:  # or an error of a token function
            error = no_agent
        if self._committed is not None:
            for future, id_ in zip(self._futures, self._committed.records, strict=True):
                if is_wanted(future):
                    future.set_result(id_)
        elif lost:
            unknown = OutcomeUnknownError(f"{self._unknown()}: {error}")
            unknown.__cause__ = error
            self._fail(unknown)
        else:
            self._fail(self._not_committed(str(error), error))

    async def _abort(self) -> None:
        """Tell the agent, which otherwise aborts the transaction when its time is over."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})
        if self._error is not None and isinstance(self._error.__cause__, UnavailableError):
            return  # the time is over
        if self._is_abort_sent:
            return
        self._is_abort_sent = True
        until = time.monotonic() + min(ABORT_SECONDS, self._agents.options.retry_for)
        try:
            await self._agents.confirmed(calls.abort(self.id), until)
        except Exception as error:  # also of a token function
            logger.warning(
                "transaction %s is not aborted before its time is over: %s", self.id, error
            )

    def _end(self) -> None:
        self._is_ending = True
        if self._timer is not None:
            self._timer.cancel()

    def _time_is_over(self) -> None:
        self._fail(self._not_committed(f"its time of {self._timeout:g} s is over"))

    def _fail(self, error: OplogError) -> None:
        if self._error is not None:  # the futures have failed
            return
        self._error = error
        self._waiting.clear()
        for future in self._futures:
            fail(future, error)
        self._room.close()
        self._changes.notify()

    def _not_committed(self, reason: str, cause: BaseException | None = None) -> TransactionError:
        error = TransactionError(f"transaction {self.id} is not committed: {reason}")
        error.__cause__ = cause
        return error

    def _unknown(self) -> str:
        return f"transaction {self.id} may be committed, no agent has confirmed it"
