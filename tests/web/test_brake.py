"""How many different wrong passwords an address may try."""

import pytest

from oplogd.web import brake
from oplogd.web.brake import GUESSES, REFILL_SECONDS, Brake

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def guess(brake_: Brake, address: str, *numbers: int) -> None:
    for number in numbers:
        assert brake_.wait(address, b"%d" % number) == 0
        brake_.missed(address, b"%d" % number)


def test_after_its_free_guesses_an_address_has_to_wait_and_others_have_not(clock: Clock) -> None:
    under_test = Brake(clock)
    guess(under_test, HERE, *range(GUESSES))
    assert under_test.wait(HERE, b"next") == REFILL_SECONDS
    assert under_test.wait(THERE, b"next") == 0
    clock.now += REFILL_SECONDS - 1
    assert under_test.wait(HERE, b"next") == pytest.approx(1)
    clock.now += 1
    guess(under_test, HERE, 100)
    assert under_test.wait(HERE, b"next") == pytest.approx(REFILL_SECONDS)


def test_the_same_wrong_password_again_and_again_costs_one_guess(clock: Clock) -> None:
    under_test = Brake(clock)
    guess(under_test, HERE, *[7] * 1000)
    guess(under_test, HERE, *range(GUESSES))  # one of them is 7
    under_test.missed(HERE, b"7")
    assert under_test.wait(HERE, b"7") == 0
    assert under_test.wait(HERE, b"right or wrong") > 0


def test_a_long_rest_gives_back_no_more_than_the_free_guesses(clock: Clock) -> None:
    under_test = Brake(clock)
    guess(under_test, HERE, 1)
    clock.now += 1_000_000
    guess(under_test, HERE, *range(100, 100 + GUESSES))
    assert under_test.wait(HERE, b"next") > 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("unknown", "unknown", True),
    ],
)
def test_a_guesser_is_an_ipv4_address_or_an_ipv6_network(clock: Clock, one: str, other: str, same: bool) -> None:
    under_test = Brake(clock)
    guess(under_test, one, *range(GUESSES))
    assert (under_test.wait(other, b"next") > 0) is same


def test_what_is_remembered_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "_ADDRESSES", 2)
    under_test = Brake(clock)
    guess(under_test, "192.0.2.1", *range(GUESSES))
    guess(under_test, "192.0.2.2", *range(GUESSES))
    guess(under_test, "192.0.2.3", 1)  # the first is forgotten
    assert [under_test.wait(f"192.0.2.{n}", b"next") > 0 for n in (1, 2, 3)] == [False, True, False]
    for number in range(1000):
        under_test.missed(HERE, b"%d" % number)
    assert len(under_test._records[HERE].wrong) == brake._REMEMBERED
