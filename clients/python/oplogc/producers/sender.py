"""Delivers an outbox over HTTP: the part common to both producers."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from oplogc.http.answers import AGENT, password_problem
from oplogc.http.client import Http, NoAnswer
from oplogc.producers.options import HttpOptions
from oplogc.producers.outbox import Outbox
from oplogc.producers.verdict import Later, Verdict, judge

_HEADERS = {"Content-Type": "application/x-ndjson", "Accept-Encoding": "identity"}
logger = logging.getLogger("oplogc")


class Sender:
    """Sends batches, one after another, until it is cancelled or, after ``finish``, the outbox is
    empty.

    ``lock`` guards the outbox. ``changed`` is called with the lock held after each answer.
    """

    def __init__(
        self,
        options: HttpOptions,
        outbox: Outbox,
        lock: AbstractContextManager[Any],
        changed: Callable[[], None],
    ) -> None:
        self._endpoint = options.endpoint
        self._http = Http(options.proxy, options.timeout, server=AGENT)
        self._outbox = outbox
        self._lock = lock
        self._changed = changed
        self._finishing = False
        self.more = asyncio.Event()
        """To be set, in the event loop, when an operation was added to an empty outbox."""

    def finish(self) -> None:
        """End once the outbox is empty. To be called in the event loop."""
        self._finishing = True
        self.more.set()

    async def run(self) -> None:
        try:
            while True:
                self.more.clear()
                with self._lock:
                    batch = self._outbox.batch()
                if not batch and self._finishing:
                    return
                if not batch:
                    await self.more.wait()
                    continue
                verdict = await self._post(batch)
                with self._lock:
                    delay = self._outbox.apply(verdict)
                    self._changed()
                await asyncio.sleep(delay)
        finally:
            await self._http.aclose()

    async def _post(self, batch: list[bytes]) -> Verdict:
        try:
            answer = await self._http.ask("POST", self._endpoint, b"\n".join(batch), _HEADERS)
            if isinstance(answer, NoAnswer):
                return Later(answer.reason)
            verdict = judge(answer, len(batch))
            if isinstance(verdict, Later) and verdict.status == 401:
                reason = password_problem(verdict.reason, answer.authorized, "password")
                return dataclasses.replace(verdict, reason=reason)
            return verdict
        except Exception as error:
            # No error may end the sender: the operations would wait for ever without a message.
            logger.debug("an answer cannot be judged", exc_info=True)
            return Later(f"{type(error).__name__}: {error}")
