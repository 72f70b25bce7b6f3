"""The judgement of answers about the lease, on a clock of the test."""

import pytest

from oplog_relay import LeaseState, Limits
from oplog_relay.leader.leadership import Leadership, Standing
from oplog_relay.leader.poller import LeasePoller

_LIMITS = Limits(heartbeat=5.0, session=10.0)


def _mine(term: int) -> LeaseState:
    return LeaseState(True, "me", term, 10.0)


def _theirs(term: int) -> LeaseState:
    return LeaseState(False, "them", term, 10.0)


def _leader(term: int = 7, at: float = 0.0) -> Leadership:
    leadership = Leadership(_LIMITS)
    leadership.answered(at, True, _mine(term))
    return leadership


def test_a_relay_follows_until_an_answer_names_it() -> None:
    leadership = Leadership(_LIMITS)
    assert leadership.asks_for_term()
    leadership.answered(0.0, True, _theirs(6))
    assert (leadership.standing, leadership.may_send(0.0, 0)) == (Standing.FOLLOWING, False)
    leadership.answered(1.0, True, _mine(7))
    assert (leadership.standing, leadership.term) == (Standing.LEADING, 7)
    assert not leadership.asks_for_term()
    assert leadership.defeats == 0


@pytest.mark.parametrize(("now", "may"), [(5.0, True), (5.001, False)])
def test_a_leader_may_send_for_a_heartbeat_after_a_poll_was_sent(now: float, may: bool) -> None:
    leadership = _leader(at=0.0)
    assert leadership.may_send(now, 7) is may
    leadership.check(now)
    assert (leadership.standing is Standing.LEADING) is may
    assert leadership.defeats == (not may)


def test_only_the_present_term_may_send() -> None:
    leadership = _leader(7)
    assert not leadership.may_send(0.0, 6)
    leadership.renew(7)
    assert not leadership.may_send(0.0, 7)
    leadership.answered(0.1, True, _mine(8))
    assert (leadership.may_send(0.1, 7), leadership.may_send(0.1, 8)) == (False, True)
    assert leadership.defeats == 0


def test_an_answer_counts_from_the_moment_before_its_poll() -> None:
    leadership = _leader(at=0.0)
    leadership.answered(4.0, False, _mine(7))
    assert leadership.may_send(9.0, 7)
    assert not leadership.may_send(9.1, 7)


def test_an_answer_that_was_asleep_for_a_heartbeat_does_not_make_a_leader() -> None:
    leadership = Leadership(_LIMITS)
    leadership.answered(0.0, True, _mine(7))
    leadership.check(30.0)
    assert leadership.standing is Standing.FOLLOWING


def test_a_fenced_relay_needs_a_new_term_although_the_lease_is_still_its_own() -> None:
    leadership = _leader(7, at=0.0)
    leadership.check(6.0)
    leadership.answered(4.9, False, _mine(7))
    assert leadership.standing is Standing.FOLLOWING
    assert leadership.asks_for_term()
    leadership.answered(6.1, True, _mine(8))
    assert (leadership.standing, leadership.term) == (Standing.LEADING, 8)


def test_another_holder_ends_the_lead_and_is_named() -> None:
    leadership = _leader(7)
    leadership.answered(1.0, False, _theirs(8))
    assert (leadership.standing, leadership.defeats) == (Standing.FOLLOWING, 1)
    assert leadership.reason == "them holds the lease with term 8"


def test_a_renewal_that_finds_another_holder_ends_the_lead() -> None:
    leadership = _leader(7)
    leadership.renew(7)
    leadership.answered(1.0, True, _theirs(8))
    assert (leadership.standing, leadership.defeats) == (Standing.FOLLOWING, 1)


def test_a_term_that_a_lost_request_has_raised_is_renewed() -> None:
    leadership = _leader(7)
    leadership.answered(1.0, False, _mine(8))
    assert (leadership.standing, leadership.defeats) == (Standing.RENEWING, 0)
    assert leadership.asks_for_term()
    leadership.answered(1.1, True, _mine(9))
    assert leadership.may_send(1.1, 9)


def test_an_answer_without_a_new_term_does_not_end_a_renewal() -> None:
    leadership = _leader(7)
    leadership.renew(7)
    leadership.answered(1.0, False, _mine(7))
    assert leadership.standing is Standing.RENEWING


def test_a_renewal_of_an_earlier_term_changes_nothing() -> None:
    leadership = _leader(8)
    leadership.renew(7)
    assert leadership.standing is Standing.LEADING


def test_a_renewal_without_answer_ends_after_a_heartbeat() -> None:
    leadership = _leader(7, at=0.0)
    leadership.renew(7)
    leadership.check(5.1)
    assert (leadership.standing, leadership.defeats) == (Standing.FOLLOWING, 1)
    assert leadership.reason == "no answer about the lease for 5 s"


@pytest.mark.parametrize(
    ("now", "seconds"), [(0.0, 2.5), (2.5, 2.5), (4.0, 1.0), (5.0, 0.001), (9.0, 0.001)]
)
def test_a_poll_of_a_leader_ends_before_its_heartbeat_does(now: float, seconds: float) -> None:
    assert _leader(at=0.0).poll_timeout(now) == seconds
    assert Leadership(_LIMITS).poll_timeout(now) == 2.5


async def test_a_poll_without_an_answer_in_time_is_told_as_such(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Silent:
        async def poll(
            self, seconds: float, *, refresh: bool = False, note: str | None = None
        ) -> LeaseState:
            poller.stop()
            raise TimeoutError

        async def release(self, seconds: float, term: int) -> None: ...

        async def close(self) -> None: ...

    poller = LeasePoller(
        _LIMITS,
        Silent(),
        Leadership(_LIMITS),
        lambda: 0.0,
        note=lambda: None,
        noted=lambda: None,
        changed=lambda: None,
    )
    await poller.run()
    assert caplog.messages == ["no agent answers about the lease: time-out"]
