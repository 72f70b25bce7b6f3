"""Judges the answers about the lease: who leads, under which term, and for how long. No I/O."""

import time
from enum import Enum, auto

from oplog_relay.model.bindings import LeaseState
from oplog_relay.model.settings import Limits

# The least a poll gets.
_LEAST_POLL_S = 0.001


class Standing(Enum):
    FOLLOWING = auto()
    # Holds the lease, with a usable term.
    LEADING = auto()
    # Holds the lease and waits for a new term.
    RENEWING = auto()


class Leadership:
    """The standing of one relay. Times are seconds, also while the machine sleeps.

    Each poll of a following relay asks for a new term. So nothing was sent under the term of the
    answer that makes the relay leader, whatever answers got lost before. ``defeats`` counts losses
    of the lead. ``reason``: the last cause.
    """

    def __init__(self, limits: Limits) -> None:
        self._heartbeat = limits.heartbeat
        self._confirmed = 0.0
        self.standing = Standing.FOLLOWING
        self.term = 0
        self.defeats = 0
        self.reason = ""

    def may_send(self, now: float, term: int) -> bool:
        """Return whether rows may be sent under this term. Call it immediately before each send."""
        return (
            self.standing is Standing.LEADING
            and self.term == term
            and now - self._confirmed <= self._heartbeat
        )

    def asks_for_term(self) -> bool:
        """Return whether the next poll is to ask for a new term."""
        return self.standing is not Standing.LEADING

    def poll_timeout(self, now: float) -> float:
        """Return the seconds of the next poll.

        Half a heartbeat leaves time for another agent. It never passes the time of self-fencing.
        """
        if self.standing is Standing.FOLLOWING:
            return self._heartbeat / 2
        left = self._confirmed + self._heartbeat - now
        return max(min(self._heartbeat / 2, left), _LEAST_POLL_S)

    def check(self, now: float) -> None:
        """Lose the lead if no poll has succeeded within a heartbeat."""
        if self.standing is not Standing.FOLLOWING and now - self._confirmed > self._heartbeat:
            self._lose(f"no answer about the lease for {self._heartbeat:g} s")

    def renew(self, term: int) -> None:
        """Ask for a new term in place of this one."""
        if self.standing is Standing.LEADING and self.term == term:
            self.standing = Standing.RENEWING

    def give_up(self) -> None:
        """Follow from now on. The lease is released."""
        self.standing = Standing.FOLLOWING

    def answered(self, sent: float, asked_for_term: bool, answer: LeaseState) -> None:
        """Judge the answer to a poll. ``sent``: time before it, as answers may be late.

        ``check`` must follow.
        """
        if not answer.is_leader:
            if self.standing is not Standing.FOLLOWING:
                self._lose(f"{answer.holder or 'no relay'} holds the lease with term {answer.term}")
            return
        if asked_for_term:
            self.standing = Standing.LEADING
            self.term = answer.term
        elif self.standing is Standing.LEADING and answer.term != self.term:
            # A request of this relay, counted as failed, was carried out late.
            self.standing = Standing.RENEWING
            self.reason = f"the term is {answer.term}, not {self.term}"
        self._confirmed = sent

    def _lose(self, reason: str) -> None:
        self.standing = Standing.FOLLOWING
        self.reason = reason
        self.defeats += 1


def boot_time() -> float:
    """Return seconds since the machine started, sleep included."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
