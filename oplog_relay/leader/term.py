"""One term of a leader: marks, sends and purges rows until the term ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from oplog_kit.wording import counted
from oplog_relay.leader.end import GRACE_S, Cause, End, Tools, wait
from oplog_relay.leader.flow import Flow, Request
from oplog_relay.model.bindings import Outcome, Verdict
from oplog_relay.model.errors import OutboxError
from oplog_relay.model.row import shown

_log = logging.getLogger("oplog_relay")
_T = TypeVar("_T")

# Freed keys between two marks. Each needs a statement, which reads the whole table.
_MOST_FREED = 10
# Longest pause while the agent refuses this relay.
_LONGEST_FORBIDDEN_S = 30.0
_TWICE = "twice: another relay marks this table, or its ids were restarted"


class Term:
    """A term of a leader. Nothing is sent or marked after ``end``.

    ``may_send`` is called immediately before each send and mark. False: the term has ended.
    """

    def __init__(
        self, tools: Tools, leader_id: UUID, number: int, may_send: Callable[[], bool]
    ) -> None:
        self.leader_id = leader_id
        self.number = number
        tools.blocked.new_term()
        self.flow = Flow(tools.limits, tools.blocked)
        # Rows that may have arrived and are not purged, once ``run`` has returned.
        self.unfinished = 0
        self._tools = tools
        self._may_send = may_send
        self._end: End | None = None
        self._ended = asyncio.Event()
        self._wake_marker = asyncio.Event()
        self._wake_purger = asyncio.Event()
        self._wake_senders = [asyncio.Event() for _ in range(tools.limits.shards)]
        self._marks = 0
        # Pause between two attempts while the agent refuses this relay; 0: it does not.
        self._forbidden_s = 0.0
        self._attempt = asyncio.Lock()

    def end(self, end: End) -> None:
        """End the term. The first call counts."""
        if self._end is None:
            self._end = end
            self._ended.set()
            for each in (self._wake_marker, self._wake_purger, *self._wake_senders):
                each.set()

    def is_stuck(self) -> bool:
        """Return whether a row has been the first of its key for longer than it may."""
        return (
            not self._forbidden_s
            and self.flow.oldest_wait(self._tools.clock()) > self._tools.limits.queue_timeout
        )

    async def run(self) -> End:
        """Lead until ``end``, then finish: wait for requests in progress, purge and reset."""
        async with asyncio.TaskGroup() as group:
            name = f"oplog relay term {self.number}"
            tasks = [
                group.create_task(self._mark(), name=f"{name}: marker"),
                group.create_task(self._purge(), name=f"{name}: purger"),
                *(
                    group.create_task(self._send(shard), name=f"{name}: sender {shard}")
                    for shard in range(self._tools.limits.shards)
                ),
            ]
            await self._ended.wait()
            assert self._end is not None
            is_stop = self._end.cause is Cause.STOPPED
            seconds = self._tools.limits.drain if is_stop else GRACE_S
            began = self._tools.clock()
            await asyncio.wait(tasks, timeout=seconds)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        left = seconds - (self._tools.clock() - began)
        await self._clean_up(max(left, GRACE_S))
        return self._end

    async def _clean_up(self, seconds: float) -> None:
        outbox, counters = self._tools.outbox, self._tools.counters
        if rows := self.flow.unpurged():
            self.unfinished += len(rows)
            with suppress(OutboxError, TimeoutError):
                async with asyncio.timeout(seconds):
                    purged = await outbox.purge(self.leader_id, rows)
                done = len(rows) - len(purged.locked) - purged.changed
                counters.purges += 1
                counters.relayed += done
                self.unfinished -= done
        with suppress(OutboxError, TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await outbox.reset(self.leader_id)

    async def _call(self, name: str, call: Awaitable[_T]) -> _T | None:
        """Wait for the database. Return None and end the term if it does not confirm."""
        try:
            async with asyncio.timeout(self._tools.limits.queue_timeout):
                return await call
        except OutboxError as error:
            reason = f"{name} failed: {error}"
        except TimeoutError:
            reason = f"{name}: no answer of the database"
        self._fail(reason)
        return None

    def _fail(self, reason: str, retry_after: float = 0.0) -> None:
        self.end(End(Cause.UNCERTAIN, reason, retry_after))

    def _call_senders(self) -> None:
        for shard in self.flow.woken():
            self._wake_senders[shard].set()

    # Mark

    async def _mark(self) -> None:
        flow, limits, clock = self.flow, self._tools.limits, self._tools.clock
        while self._end is None:
            if not flow.has_room():
                self._wake_marker.clear()
                await self._wake_marker.wait()
                continue
            if not await self._reset_blocked() or not self._may_send():
                return
            limit = flow.begin_mark()
            if not limit:
                await wait(self._ended, limits.mark_backoff)
                continue
            began = clock()
            self._marks += 1
            full = flow.full_keys()
            mark = self._tools.outbox.mark(self.leader_id, limit, self._marks, full)
            rows = await self._call("mark", mark)
            if rows is None or self._end is not None:
                return
            now = clock()
            self._tools.counters.marks += 1
            self._tools.counters.marked += len(rows)
            known = flow.end_mark(rows, now)
            if known is not None:
                self._fail(f"row {known.id} was marked {_TWICE}")
                return
            self._call_senders()
            if not rows:
                await wait(self._ended, limits.mark_backoff)
            elif len(rows) < limit:
                # Few rows are left. Larger requests cost less, so the next mark may wait a little.
                await wait(self._ended, limits.mark_backoff - (now - began))
            if full and len(rows) < limit:
                # The mark has read all rows of these keys, which may be many.
                await wait(self._ended, now - began)

    async def _reset_blocked(self) -> bool:
        """Reset the rows of keys tried again, and of freed keys. Return False if the term is over.

        No mark is under way meanwhile: it could bring rows of a key out of order.
        """
        blocked, reset = self._tools.blocked, self._tools.outbox.reset
        for key in blocked.to_reset()[:_MOST_FREED]:
            if await self._call("reset", reset(self.leader_id, key=key)) is None:
                return False
            blocked.unblock(key)
        rows = blocked.due(self._tools.clock())
        # The number of rows tells nothing: the next mark shows whether a row is still there.
        if rows and await self._call("reset", reset(self.leader_id, rows=rows)) is None:
            return False
        return self._end is None

    # Send

    async def _send(self, shard: int) -> None:
        wake = self._wake_senders[shard]
        while self._end is None:
            request = self.flow.take(shard)
            if request is None:
                wake.clear()
                await wake.wait()
                continue
            fault = request.rows[0].fault
            outcome = Outcome(Verdict.REFUSED, fault) if fault else await self._publish(request)
            if outcome is not None:
                self._judge(request, outcome)

    async def _publish(self, request: Request) -> Outcome | None:
        """Send a request. Return None if the term has ended before."""
        if not self._forbidden_s:
            return await self._publish_now(request)
        # One sender tries at a time until the agent accepts this relay again.
        async with self._attempt:
            if self._forbidden_s:
                await wait(self._ended, self._forbidden_s)
                outcome = await self._publish_now(request)
                if outcome is not None and outcome.verdict is Verdict.FORBIDDEN:
                    self._forbidden_s = min(2 * self._forbidden_s, _LONGEST_FORBIDDEN_S)
                elif self._forbidden_s:
                    self._forbidden_s = 0.0
                    self.flow.restart_waits(self._tools.clock())
                return outcome
        return await self._publish_now(request)

    async def _publish_now(self, request: Request) -> Outcome | None:
        if self._end is not None or not self._may_send():
            return None
        self._tools.counters.requests += 1
        self.unfinished += len(request.rows)
        outcome = await self._tools.publisher.publish(request.topic, request.rows, self.number)
        if outcome.verdict is not Verdict.UNCERTAIN:
            self.unfinished -= len(request.rows)
        return outcome

    def _judge(self, request: Request, outcome: Outcome) -> None:
        flow, counters = self.flow, self._tools.counters
        match outcome.verdict:
            case Verdict.ACCEPTED:
                flow.accept(request)
                self._wake_purger.set()
            case Verdict.REFUSED:
                self._refused(request, outcome.reason)
            case Verdict.FORBIDDEN:
                counters.forbidden += 1
                flow.give_back(request)
                if not self._forbidden_s:
                    self._forbidden_s = self._tools.limits.io_error_backoff
                    _log.warning("sending stops: %s; it is tried again", outcome.reason)
            case Verdict.STALE | Verdict.UNCERTAIN:
                self._fail(outcome.reason, outcome.retry_after)

    def _refused(self, request: Request, reason: str) -> None:
        refusal = self.flow.refuse(request, reason, self._tools.clock(), datetime.now(UTC))
        self._wake_marker.set()
        if refusal is None:
            return
        self._tools.counters.refused += 1
        if refusal.worth_logging:
            row = refusal.blocked
            _log.warning(
                "row %d of topic %s is refused and blocks its key %s: %s; attempts: %d",
                row.id,
                shown(row.topic),
                shown(row.key),
                row.reason,
                row.attempts,
            )

    # Purge

    async def _purge(self) -> None:
        counters, flow, clock = self._tools.counters, self.flow, self._tools.clock
        has_warned = False
        while self._end is None:
            rows = flow.to_purge(clock())
            if not rows:
                self._wake_purger.clear()
                await wait(self._wake_purger, flow.purge_pause(clock()))
                continue
            purged = await self._call("purge", self._tools.outbox.purge(self.leader_id, rows))
            if purged is None:
                return
            if purged.changed:
                self._fail(f"{counted(purged.changed, 'row')} in flight were marked {_TWICE}")
                return
            if purged.remaining and not has_warned:
                has_warned = True
                _log.warning(
                    "the purge of %d rows left %d in the table: a trigger or a policy of the"
                    " database keeps them; they are sent again in the next term, out of order",
                    len(rows),
                    purged.remaining,
                )
            if locked := {*purged.locked}:
                flow.lock([row for row in rows if row.id in locked], clock())
                rows = [row for row in rows if row.id not in locked]
            flow.purged(rows, clock())
            counters.purges += 1
            counters.relayed += len(rows)
            self._wake_marker.set()
            self._call_senders()
