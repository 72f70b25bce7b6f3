"""The lead of a relay: one term after the other, while it holds the lease."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID, uuid4

from oplog_relay.leader.end import GRACE_S, Cause, End, Tools, wait
from oplog_relay.leader.leadership import Leadership, Standing
from oplog_relay.leader.poller import LeasePoller
from oplog_relay.leader.term import Term
from oplog_relay.model.bindings import LeaseClient
from oplog_relay.model.errors import LeaseUnavailableError
from oplog_relay.model.events import LeaderAcquired, LeaderFenced, LeaderRefreshed, LeaderRevoked
from oplog_relay.model.settings import Limits
from oplog_relay.model.state import Counters
from oplog_relay.watch.dispatch import Dispatcher
from oplog_relay.watch.progress import is_logged

_log = logging.getLogger("oplog_relay")

# A series of failures ends after this time without one.
_SERIES_S = 60.0
# Longest pause an agent may ask for.
_MAX_RETRY_AFTER_S = 30.0


class Lead:
    """``began`` is called at the beginning of each term. ``clock``: seconds.

    - ``leader_id``, ``term``: of the present term; None: this relay does not lead.
    - ``number``: of the last term. ``unfinished``: its rows in the outbox that may have arrived;
      0 while a term lasts.
    """

    def __init__(
        self,
        limits: Limits,
        dispatcher: Dispatcher,
        counters: Counters,
        clock: Callable[[], float],
        began: Callable[[], None],
    ) -> None:
        self.leadership = Leadership(limits)
        self.leader_id: UUID | None = None
        self.number = 0
        self.unfinished = 0
        self.term: Term | None = None
        self.stopping = asyncio.Event()
        self.news = asyncio.Event()
        self._limits = limits
        self._dispatcher = dispatcher
        self._counters = counters
        self._clock = clock
        self._began = began
        self._defeats = 0

    def stop(self) -> None:
        """End the present term, and begin no other one."""
        self.stopping.set()
        self.news.set()
        if self.term is not None:
            self.term.end(End(Cause.STOPPED))

    async def revoke(self) -> None:
        """Tell the handlers the lead is handed over, if this relay leads."""
        if self.leader_id is not None:
            _log.debug("the lead is given up: term %d", self.number)
            await self._dispatcher.post(LeaderRevoked(self.leader_id, self.number)).wait()

    async def release(self, lease: LeaseClient) -> None:
        if self.leadership.standing is Standing.FOLLOWING:
            return
        try:
            async with asyncio.timeout(GRACE_S):
                await lease.release(GRACE_S, self.leadership.term)
        except (LeaseUnavailableError, TimeoutError) as error:
            _log.warning(
                "the lease could not be released, and expires within %g s: %s",
                self._limits.session,
                str(error) or "time-out",
            )

    async def run(self, tools: Tools, poller: LeasePoller, lease: LeaseClient) -> None:
        """Lead one term after the other, until the relay is to stop."""
        reason, failures, failed_at = "", 0, 0.0
        while not self.stopping.is_set():
            if self.leadership.standing is not Standing.LEADING:
                self.news.clear()
                await self.news.wait()
                continue
            number, leader_id = self.leadership.term, uuid4()
            is_refresh = self.leader_id is not None
            self._began()
            self.number, self.leader_id = number, leader_id
            term = self.term = Term(tools, leader_id, number, partial(self._may_send, number))
            if is_refresh:
                self._counters.refreshes += 1
                _log.debug("leads on with term %d, leader id %s", number, leader_id)
                done = self._dispatcher.post(LeaderRefreshed(leader_id, number, reason, failures))
            else:
                self._counters.acquired += 1
                _log.debug("leads with term %d, leader id %s", number, leader_id)
                done = self._dispatcher.post(LeaderAcquired(leader_id, number))
            if not await done.wait() and not self.stopping.is_set():
                self.term = None
                await self._give_up(poller, lease)
                continue
            if self.stopping.is_set():
                term.end(End(Cause.STOPPED))
            self.unfinished = 0
            end = await term.run()
            self.term = None
            if end.cause is not Cause.FENCED:
                self.unfinished = term.unfinished
            reason = end.reason
            if end.cause is Cause.UNCERTAIN:
                self._counters.uncertain += 1
                now = self._clock()
                failures = failures + 1 if now - failed_at < _SERIES_S else 1
                failed_at = now
                level = logging.WARNING if is_logged(failures) else logging.DEBUG
                _log.log(level, "a new term is needed: %s; failures: %d", reason, failures)
                retry_after = min(end.retry_after, _MAX_RETRY_AFTER_S)
                await wait(self.stopping, max(self._limits.io_error_backoff, retry_after))
                self.leadership.renew(number)
                poller.poll_now()

    async def _give_up(self, poller: LeasePoller, lease: LeaseClient) -> None:
        """Hand the lead over because a handler hangs, and let other relays take it."""
        await self.revoke()
        async with poller.quiet:
            if self.leader_id is not None:
                await self.release(lease)
                self.leadership.give_up()
                self.leader_id = None
            # Time for another relay to lead: this one would call the handler again.
            await wait(self.stopping, self._limits.session)

    def _may_send(self, number: int) -> bool:
        now = self._clock()
        if self.leadership.may_send(now, number):
            return True
        self.leadership.check(now)
        self.judge()
        return False

    def judge(self) -> None:
        """End the term if the lease, or the clock, says so."""
        leadership, term = self.leadership, self.term
        if leadership.defeats != self._defeats:
            self._defeats = leadership.defeats
            if self.leader_id is not None:
                self._counters.fenced += 1
                _log.debug("the lead is lost: %s", leadership.reason)
                event = LeaderFenced(self.leader_id, self.number, leadership.reason)
                self._dispatcher.post(event)
                self.leader_id = None
            if term is not None:
                term.end(End(Cause.FENCED, leadership.reason))
        elif term is not None:
            if leadership.standing is not Standing.LEADING or leadership.term != term.number:
                term.end(End(Cause.UNCERTAIN, leadership.reason))
            elif term.is_stuck():
                seconds = self._limits.queue_timeout
                term.end(End(Cause.UNCERTAIN, f"a row is in flight for more than {seconds:g} s"))
        self.news.set()
