"""Delivers an outbox over HTTP: the part of both producers that talks to the agent."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx

from oplogc.address import Endpoint
from oplogc.answers import describe, read_answer
from oplogc.errors import OplogError
from oplogc.http_client import hide_query, http_client
from oplogc.outbox import Outbox
from oplogc.verdict import Later, Verdict, judge

_HEADERS = {"Content-Type": "application/x-ndjson", "Accept-Encoding": "identity"}
logger = logging.getLogger("oplogc")


class Sender:
    """Sends batches, one after another, until it is cancelled or, after ``finish``, the outbox is
    empty.

    ``timeout``: seconds for a request in total, its answer included. ``lock`` guards the outbox.
    ``changed`` is called with the lock held after each answer.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        proxy: str | None,
        timeout: float,
        outbox: Outbox,
        lock: AbstractContextManager[Any],
        changed: Callable[[], None],
    ) -> None:
        self._endpoint = endpoint
        self._proxy = proxy
        self._timeout = timeout
        self._outbox = outbox
        self._lock = lock
        self._changed = changed
        self._finishing = False
        self._client: httpx.AsyncClient | None = None
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
            if self._client is not None:
                await self._client.aclose()

    async def _post(self, batch: list[bytes]) -> Verdict:
        try:
            if self._client is None:
                self._client = http_client(self._proxy, auth=self._endpoint.auth, headers=_HEADERS)
            async with asyncio.timeout(self._timeout):
                content = b"\n".join(batch)
                request = self._client.build_request("POST", self._endpoint.url, content=content)
                response = await self._client.send(hide_query(request), stream=True)
                try:
                    answer = await read_answer(response)
                finally:
                    await response.aclose()
            return judge(answer, len(batch))
        except TimeoutError:
            return Later(f"no answer within {self._timeout:g} s")
        except httpx.RequestError as error:
            return Later(describe(error))
        except OplogError as error:
            return Later(str(error))
        except Exception as error:
            # No error may end the sender: the operations would wait for ever without a message.
            logger.debug("a request failed", exc_info=True)
            return Later(f"{type(error).__name__}: {error}")
