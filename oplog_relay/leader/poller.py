"""Polls the lease of a group: the poll is also the heartbeat."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from oplog_relay.leader.end import wait
from oplog_relay.leader.leadership import Leadership, Standing
from oplog_relay.model.bindings import LeaseClient
from oplog_relay.model.errors import LeaseUnavailableError
from oplog_relay.model.settings import Limits

_log = logging.getLogger("oplog_relay")


@dataclass(eq=False)
class LeasePoller:
    """Polls the lease until ``stop``, and tells its leadership the answers.

    ``note`` returns the text for the lease, None for no change. ``noted`` is called after its
    arrival, ``changed`` before and after every poll.
    """

    limits: Limits
    lease: LeaseClient
    leadership: Leadership
    clock: Callable[[], float]
    note: Callable[[], str | None]
    noted: Callable[[], None]
    changed: Callable[[], None]

    def __post_init__(self) -> None:
        # No poll is under way while another task holds this lock.
        self.quiet = asyncio.Lock()
        self._now = asyncio.Event()
        self._is_over = False
        self._is_away = False

    def poll_now(self) -> None:
        """End the pause between two polls."""
        self._now.set()

    def stop(self) -> None:
        """Poll no more. A poll in progress ends."""
        self._is_over = True
        self._now.set()

    async def run(self) -> None:
        while not self._is_over:
            self._now.clear()
            async with self.quiet:
                if self._is_over:
                    return
                self._check()
                await self._poll()
            self._check()
            await wait(self._now, self.limits.poll)

    def _check(self) -> None:
        self.leadership.check(self.clock())
        self.changed()

    async def _poll(self) -> None:
        leadership, clock = self.leadership, self.clock
        asks_for_term = leadership.asks_for_term()
        note = self.note() if leadership.standing is Standing.LEADING else None
        sent = clock()
        seconds = leadership.poll_timeout(sent)
        try:
            async with asyncio.timeout(seconds):
                answer = await self.lease.poll(seconds, refresh=asks_for_term, note=note)
        except (LeaseUnavailableError, TimeoutError) as error:
            if not self._is_away:
                _log.warning("no agent answers about the lease: %s", str(error) or "time-out")
            self._is_away = True
            return
        self._is_away = False
        leadership.answered(sent, asks_for_term, answer)
        if note is not None:
            self.noted()
