"""Reads the body of a POST within bounds of memory and time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from fastapi import Request

from oplog_kit.wording import shortened
from oplogd.clock import SYSTEM, Clock
from oplogd.decode.buffers import Buffer
from oplogd.decode.compressed import TooLargeError, decompressing
from oplogd.decode.pieces import Pieces
from oplogd.ingest.budget import Budgets, NoRoomError, Share
from oplogd.model.operation import format_ms
from oplogd.web.http.problem import Problem

# Longest time for which the work on a body blocks the event loop.
_SLICE_SECONDS = 0.003

_MAX_SMALL_BODY = 16 * 1024

# The work on a body of this size, up to its first fault, takes less than a slice.
_MAX_AT_ONCE = 16 * 1024

_T = TypeVar("_T")


class BodyReader:
    """Receives bodies side by side, and decodes large ones one after the other.

    ``max_size``: bytes of a body, before and after decompression.
    """

    def __init__(self, budgets: Budgets, max_size: int, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._budgets = budgets
        self._max_size = max_size
        self._decoding_large = asyncio.Lock()
        # A formatted time.
        self._arrival = (-1, "")

    def arrival(self) -> str:
        """Return the timestamp of operations arriving now without one."""
        now = self._clock.now_ms()
        if now != self._arrival[0]:
            self._arrival = now, format_ms(now)
        return self._arrival[1]

    @asynccontextmanager
    async def received(
        self,
        request: Request,
        plural: str,
        max_size: int | None = None,
        *,
        is_poll: bool = False,
    ) -> AsyncIterator[Buffer]:
        """Yield the whole body, decompressed. Its share of the memory is taken until the end.

        ``plural``: the plural noun for messages to users, empty if a client cannot split the body.
        ``max_size``: bytes before and after decompression, if the endpoint has a smaller limit.
        Raises Problem 415, NoRoomError, TooLargeError, and OperationError if the body is not gzip.
        """
        limit = self._max_size if max_size is None else min(max_size, self._max_size)
        with (self._budgets.polls if is_poll else self._budgets.writes).share() as share:
            encoding = request.headers.get("content-encoding", "identity").strip().lower()
            if encoding not in ("identity", "gzip", ""):
                raise Problem(
                    415,
                    f"a body may be compressed with gzip, not {shortened(encoding)}",
                    {"Accept-Encoding": "gzip"},
                )
            body = await self._receive(request, share, limit, plural)
            if encoding == "gzip":
                body = await self.work(decompressing(body, limit, share.take))
            yield body

    def takes_at_once(self, size: int, *, is_poll: bool = False) -> bool:
        """Return whether a whole body of this size may be worked on without ``received``."""
        budget = self._budgets.polls if is_poll else self._budgets.writes
        return size <= min(_MAX_AT_ONCE, self._max_size) and budget.has_room(size)

    async def _receive(self, request: Request, share: Share, limit: int, plural: str) -> Buffer:
        """Return the whole body. Raises TooLargeError and NoRoomError before it holds too much."""
        advice = f"; send fewer {plural} at a time" if plural else ""
        too_large = TooLargeError(f"the body has more than {limit:,} bytes{advice}")
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            raise too_large
        received = bytearray()
        try:
            async with asyncio.timeout(None) as timer:
                async for chunk in request.stream():
                    if len(received) + len(chunk) > limit:
                        raise too_large
                    share.take(len(chunk))
                    if not received:
                        share.begin_arrival(lambda: timer.reschedule(0))
                    received += chunk
        except TimeoutError:
            raise NoRoomError(
                "the body took longer than --body-timeout, and other bodies need its share of"
                " --max-upload-memory; try again later"
            ) from None
        share.end_arrival()
        return received

    async def work(self, pieces: Pieces[_T]) -> _T:
        """Return the result of work on a body. Other requests run between its slices.

        Only one body at a time takes more than one slice.
        """
        is_done, result = _slice(pieces)
        if not is_done:
            async with self._decoding_large:
                while not is_done:
                    await asyncio.sleep(0)
                    is_done, result = _slice(pieces)
        assert result is not None
        return result


async def small_body(request: Request) -> bytes:
    """Return a body of at most 16 KB. Raises Problem 413."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_SMALL_BODY:
            raise Problem(413, f"the body has more than {_MAX_SMALL_BODY:,} bytes")
    return bytes(body)


def _slice(pieces: Pieces[_T]) -> tuple[bool, _T | None]:
    """Work for one slice of time. Return whether the work is done, and its result."""
    until = time.perf_counter() + _SLICE_SECONDS
    try:
        while True:
            next(pieces)
            if time.perf_counter() > until:
                return False, None
    except StopIteration as end:
        return True, end.value
