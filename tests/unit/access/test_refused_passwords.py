"""Refused passwords: all are counted, and the log names each address once per episode."""

import logging

import pytest

from oplogd.host.senders import MAX_ADDRESSES, SenderEpisodes
from tests.kits.clock.virtual import VirtualClock

QUIET_SECONDS = 60.0
WRONG = "it is wrong"


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> VirtualClock:
    caplog.set_level("INFO")
    return VirtualClock()


def passwords(subject: str, clock: VirtualClock) -> SenderEpisodes:
    problem = f"{subject}: refusing passwords from"
    logger = logging.getLogger("oplogd.password")
    return SenderEpisodes(logger, problem, quiet=QUIET_SECONDS, clock=clock.monotonic)


def test_each_address_has_one_line_at_the_begin_and_one_at_the_end_of_its_episode(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refused = passwords("writing", clock)
    for _ in range(220):
        refused.occurred("192.0.2.1", WRONG)
    refused.occurred("2001:db8::1", WRONG)
    refused.occurred("2001:db8::2", WRONG)
    refused.ended()
    clock.move(QUIET_SECONDS)
    refused.ended()
    refused.ended()
    assert refused.count == 222
    assert caplog.messages == [
        "writing: refusing passwords from 192.0.2.1: it is wrong",
        "writing: refusing passwords from 2001:db8::/64: it is wrong",
        "writing: refusing passwords from 192.0.2.1: over, 220 times in 0.0 s",
        "writing: refusing passwords from 2001:db8::/64: over, 2 times in 0.0 s",
    ]


def test_many_addresses_share_one_episode(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refused = passwords("reading", clock)
    for number in range(10 * MAX_ADDRESSES):
        refused.occurred(f"10.0.{number // 250}.{number % 250}", WRONG)
    assert len(caplog.messages) == MAX_ADDRESSES + 1
    shared = f"10.0.0.{MAX_ADDRESSES}"
    assert caplog.messages[-1] == (
        f"reading: refusing passwords from other addresses: such as {shared}: it is wrong"
    )
    clock.move(QUIET_SECONDS)
    refused.occurred("192.0.2.1", WRONG)
    assert caplog.messages[-1] == "reading: refusing passwords from 192.0.2.1: it is wrong"
    assert len(caplog.messages) == 2 * (MAX_ADDRESSES + 1) + 1
    assert refused.count == 10 * MAX_ADDRESSES + 1


def test_an_address_that_comes_back_after_a_pause_has_an_episode_of_its_own_without_a_success(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refused = passwords("writing", clock)
    for _ in range(2):
        refused.occurred("192.0.2.1", WRONG)
        clock.move(QUIET_SECONDS)
    assert caplog.messages == [
        "writing: refusing passwords from 192.0.2.1: it is wrong",
        "writing: refusing passwords from 192.0.2.1: over, 1 time in 0.0 s",
        "writing: refusing passwords from 192.0.2.1: it is wrong",
    ]
