"""Sends the acknowledgements of one shard of a named consumer."""

import asyncio
import logging
import re
from asyncio import sleep
from collections.abc import Callable

from oplogc.follow.wake_up import WakeUp
from oplogc.http.answers import Answer, no_token
from oplogc.http.backoff import Backoff
from oplogc.http.client import NoAnswer
from oplogc.topics.calls import consumers
from oplogc.topics.calls.agents import Agents, ClientOptions
from oplogc.wire.errors import OplogError, RefusedError, StaleTermError

_TERM = re.compile(r"has term ([0-9]{1,18})", re.ASCII)
logger = logging.getLogger("oplogc")


class Acknowledger:
    """Acknowledges the newest handled id, in one event loop. Any thread may call ``handled``.

    ``seconds``: between two requests of ``run``. ``confirmed``: called after an acknowledgement.
    ``failed``: called with the error that ends ``run``. Calls raise RefusedError if the agent
    refuses for good, and StaleTermError if the term is over. Then nothing is sent any more.
    """

    def __init__(
        self,
        options: ClientOptions,
        name: str,
        shard: int,
        seconds: float,
        confirmed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._agents = Agents(options)
        self._has_token_function = callable(options.token)
        self._backoff = Backoff(*options.backoff)
        self._name = name
        self._shard = shard
        self._seconds = seconds
        self._tell_confirmed = confirmed
        self._tell_failed = failed
        self._handled = ""
        self._confirmed = ""
        self._given_up = ""
        self._failure: OplogError | None = None
        self._logged = ""
        self._pause = 0.0
        self._sending = asyncio.Lock()
        self._wake_up = WakeUp()
        self.term = 0
        """The term of the reader. 0 before its first stream."""

    @property
    def position(self) -> str:
        """The newest handled id. Empty before the first one."""
        return self._handled

    @property
    def is_confirmed(self) -> bool:
        """Whether the agent has confirmed the newest handled id."""
        return self._handled == self._confirmed

    def handled(self, event_id: str) -> None:
        """Everything up to an id is handled."""
        if event_id:
            self._handled = event_id
            self._wake_up.wake()

    async def run(self) -> None:
        """Send acknowledgements until cancelled."""
        try:
            while True:
                with self._wake_up.waiting() as woken:
                    if self.is_confirmed:
                        await woken.wait()
                await self.flush()
                await sleep(self._seconds)
        except Exception as error:
            self._tell_failed(error)
        await asyncio.Event().wait()  # the thread of this loop ends with ``run``

    async def flush(self) -> None:
        """Send the newest id until an agent has confirmed it."""
        while not await self.attempt():
            await sleep(self._pause)

    async def attempt(self) -> bool:
        """Send the newest id once, to each agent. Return whether one has confirmed it."""
        async with self._sending:
            if self._failure is not None:
                raise self._failure
            event_id = self._handled
            if event_id == self._confirmed:
                return True
            call = consumers.acknowledge(self._name, event_id, self.term, self._shard)
            try:
                answer, _ = await self._agents.ask_each(call)
            except Exception as error:  # of a token function
                return self._retry(no_token(error))
            if isinstance(answer, NoAnswer):
                return self._retry(answer.reason)
            if answer.passes or (answer.status == 401 and self._has_token_function):
                return self._retry(answer.sentence(), answer.retry_after)
            if (refused := consumers.refusal(call, answer)) is not None:
                self._failure = self._error(refused, answer)
                raise self._failure
            self._confirmed, self._logged = event_id, ""
            self._backoff.reset()
            self._tell_confirmed()
            return True

    async def end(self) -> None:
        """Send the newest id, within the time-out of a request. Log if it is not confirmed.

        A second call does not wait for this id again.
        """
        if self._failure is not None or self._handled == self._given_up:
            return
        timeout = self._agents.options.timeout
        try:
            async with asyncio.timeout(timeout):
                await self.flush()
        except TimeoutError:
            self._given_up = self._handled
            self._warn(f"it was not confirmed within {timeout:g} s: events may come again")
        except OplogError as error:
            self._warn(str(error))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._agents.aclose()

    def _retry(self, reason: str, retry_after: float = 0.0) -> bool:
        self._pause = self._backoff.next(retry_after)
        if reason != self._logged:
            self._warn(f"{reason}; trying again in {self._pause:.1f} s")
        self._logged = reason
        return False

    def _warn(self, reason: str) -> None:
        logger.warning(
            "acknowledging shard %d of the consumer %s: %s", self._shard, self._name, reason
        )

    def _error(self, refused: OplogError, answer: Answer) -> OplogError:
        if isinstance(refused, StaleTermError):
            return stale(self._name, self._shard, answer.detail())
        return refused


def stale(name: str, shard: int, detail: str) -> RefusedError:
    """Return the error for a term that is over. ``detail``: the agent's sentence."""
    found = _TERM.search(detail)
    term = f" (term {found[1]})" if found else ""
    return StaleTermError(
        412, f"another reader has taken shard {shard} of the consumer {name}{term}, or it was moved"
    )
