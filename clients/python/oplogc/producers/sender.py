"""Buffers operations and delivers them over HTTP: the part common to both producers."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from oplogc.http.answers import AGENT, no_token, password_problem
from oplogc.http.client import Http, NoAnswer
from oplogc.producers.options import CLOSED, ProducerOptions
from oplogc.producers.outbox import Counters
from oplogc.producers.verdict import Later, Verdict, judge

_HEADERS = {"Content-Type": "application/x-ndjson", "Accept-Encoding": "identity"}
logger = logging.getLogger("oplogc")


class HttpWay:
    """A bounded buffer, and a task that sends its batches, one after another.

    The task ends when it is cancelled or, after ``_finish``, when the buffer is empty.
    """

    _lock: AbstractContextManager[Any]
    """Guards the buffer."""

    def __init__(self, options: ProducerOptions) -> None:
        self._options = options
        self._closing = False
        self._ended = False
        self._begin()

    def _begin(self) -> None:
        """Begin with an empty buffer."""
        self._outbox = self._options.outbox()
        self._http = Http(self._options.proxy, self._options.timeout, server=AGENT)
        self._finishing = False
        self._is_started = False
        self._more = asyncio.Event()
        """Set in the event loop when an operation was added to an empty buffer."""

    def counters(self) -> Counters:
        with self._lock:
            return dataclasses.replace(self._outbox.counters)

    def _has_room(self, raw: bytes) -> bool:
        """Return whether ``send`` need not wait: there is room, or the producer is closed."""
        if self._closing or self._outbox.has_room(raw):
            return True
        return self._options.overflow == "drop_old" and self._outbox.drop_old_for(raw)

    def _put(self, raw: bytes, has_room: bool) -> None:
        if self._closing:
            raise ValueError(CLOSED)
        if not self._is_started:
            self._start()
        if not has_room:
            self._outbox.refuse(self._options.overflow)
            return
        self._outbox.add(raw)
        if self._outbox.counters.buffered == 1:
            self._in_loop(self._more.set)

    def _finish(self) -> None:
        """End the task once the buffer is empty. To be called in the event loop."""
        self._finishing = True
        self._more.set()

    async def _run(self) -> None:
        try:
            while True:
                self._more.clear()
                with self._lock:
                    batch = self._outbox.batch()
                if not batch and self._finishing:
                    return
                if not batch:
                    await self._more.wait()
                    continue
                verdict = await self._post(batch)
                with self._lock:
                    delay = self._outbox.apply(verdict)
                    self._notify()
                await asyncio.sleep(delay)
        finally:
            await self._http.aclose()

    async def _post(self, batch: list[bytes]) -> Verdict:
        to = self._options.endpoint
        try:
            answer = await self._http.ask("POST", to, b"\n".join(batch), _HEADERS)
        except Exception as error:
            return Later(no_token(error))
        try:
            if isinstance(answer, NoAnswer):
                return Later(answer.reason)
            verdict = judge(answer, len(batch))
            if isinstance(verdict, Later) and verdict.status == 401:
                reason = password_problem(
                    verdict.reason, answer.authorized, "password", answer.had_token
                )
                return dataclasses.replace(verdict, reason=reason)
            return verdict
        except Exception as error:
            # No error may end the task: the operations would wait for ever without a message.
            logger.debug("an answer cannot be judged", exc_info=True)
            return Later(f"{type(error).__name__}: {error}")

    def _start(self) -> None:
        """Start the task unless it runs. Raise ValueError if it cannot run."""
        raise NotImplementedError

    def _in_loop(self, call: Callable[[], None]) -> None:
        """Call a function in the event loop."""
        raise NotImplementedError

    def _notify(self) -> None:
        """Wake the callers that wait. To be called with the lock."""
        raise NotImplementedError
