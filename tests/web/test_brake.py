"""How many different wrong passwords an address, a network and everybody may try."""

import ipaddress
from collections import defaultdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.web import brake
from oplogd.web.brake import ADDRESS, EVERYBODY, NETWORK, Brake, Budget
from tests.properties import examples

HERE, THERE = "192.0.2.1", "198.51.100.2"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def guess(brake_: Brake, address: str, *attempts: bytes | int) -> int:
    """Try these until one is not looked at; how many were."""
    for count, each in enumerate(attempts):
        attempt = each if isinstance(each, bytes) else f"{address} {each}".encode()
        if brake_.wait(address, attempt):
            return count
        brake_.missed(address, attempt)
    return len(attempts)


def spend_everybody(brake_: Brake) -> None:
    """From networks far from each other, none of which uses up its own budget."""
    looked_at = sum(
        guess(brake_, f"2a00:{number:x}::1", *range(ADDRESS.free))
        for number in range(EVERYBODY.free)
    )
    assert looked_at == EVERYBODY.free


def test_after_its_free_guesses_an_address_has_to_wait_and_others_have_not(clock: Clock) -> None:
    under_test = Brake(clock)
    assert guess(under_test, HERE, *range(ADDRESS.free + 1)) == ADDRESS.free
    assert under_test.wait(HERE, b"next") == ADDRESS.seconds
    assert under_test.wait(THERE, b"next") == 0
    clock.now += ADDRESS.seconds - 1
    assert under_test.wait(HERE, b"next") == pytest.approx(1)
    clock.now += 1
    assert guess(under_test, HERE, 100, 101) == 1
    assert under_test.wait(HERE, b"next") == pytest.approx(ADDRESS.seconds)


def test_the_same_wrong_password_again_and_again_costs_one_guess(clock: Clock) -> None:
    under_test = Brake(clock)
    assert guess(under_test, HERE, *[7] * 1000) == 1000
    assert guess(under_test, HERE, *range(ADDRESS.free)) == ADDRESS.free  # one of them is 7
    assert under_test.wait(HERE, f"{HERE} 7".encode()) == 0
    assert under_test.wait(HERE, b"right or wrong") > 0


def test_a_thousand_consumers_with_one_old_password_make_one_guess(clock: Clock) -> None:
    under_test = Brake(clock)
    fleet = [f"10.{n // 250}.{n % 250}.1" for n in range(1000)] + [
        f"192.0.2.{n}" for n in range(1, 250)
    ]
    for _ in range(3):
        assert all(guess(under_test, address, b"an old one") == 1 for address in fleet)
    assert len(under_test._addresses) == 1
    assert guess(under_test, "192.0.2.9", *range(ADDRESS.free)) == ADDRESS.free
    assert guess(under_test, "192.0.2.7", b"an old one", *range(ADDRESS.free)) == ADDRESS.free + 1


def test_a_long_rest_gives_back_no_more_than_the_free_guesses(clock: Clock) -> None:
    under_test = Brake(clock)
    guess(under_test, HERE, 1)
    clock.now += 1_000_000
    assert guess(under_test, HERE, *range(100, 200)) == ADDRESS.free


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("unknown", "unknown", True),
        ("unknown", "", True),
        ("a name of one's choice", "another", True),
    ],
)
def test_a_guesser_is_an_ipv4_address_or_an_ipv6_network(
    clock: Clock, one: str, other: str, same: bool
) -> None:
    under_test = Brake(clock)
    guess(under_test, one, *range(ADDRESS.free))
    assert (under_test.wait(other, b"next") > 0) is same


@pytest.mark.parametrize(
    ("network", "outside"),
    [
        ("192.0.2.{:d}", "192.0.3.1"),
        ("2001:db8:1:{:x}::1", "2001:db8:2::1"),
        ("::ffff:192.0.2.{:d}", "192.0.3.1"),
    ],
)
def test_the_addresses_of_one_network_share_its_budget(
    clock: Clock, network: str, outside: str
) -> None:
    under_test = Brake(clock)
    addresses = [network.format(number) for number in range(1, 251)]
    assert (
        sum(guess(under_test, address, *range(ADDRESS.free)) for address in addresses)
        == NETWORK.free
    )
    assert under_test.wait(network.format(255), b"next") == NETWORK.seconds
    assert under_test.wait(outside, b"next") == 0
    clock.now += NETWORK.seconds
    assert sum(guess(under_test, address, b"%d" % n) for n, address in enumerate(addresses)) == 1


def test_thousands_of_networks_share_the_budget_of_everybody(clock: Clock) -> None:
    under_test = Brake(clock)
    spend_everybody(under_test)
    assert under_test.wait(HERE, b"next") == EVERYBODY.seconds
    clock.now += 10 * EVERYBODY.seconds
    assert (
        sum(
            guess(under_test, f"2b00:{number:x}::1", *range(ADDRESS.free)) for number in range(5000)
        )
        == 10
    )


@pytest.mark.parametrize("attack", ["everybody", "network"])
def test_an_address_that_gave_the_right_password_is_not_locked_out_by_others(
    clock: Clock, attack: str
) -> None:
    under_test = Brake(clock)
    under_test.passed(HERE)
    if attack == "everybody":
        spend_everybody(under_test)
    else:
        assert (
            sum(guess(under_test, f"192.0.2.{n}", *range(ADDRESS.free)) for n in range(2, 100))
            == NETWORK.free
        )
    assert under_test.wait("192.0.2.200", b"right") > 0
    assert under_test.wait(HERE, b"right") == 0
    # Its own guesses count, so that who shares the address gains little by it, and count for nobody else.
    assert guess(under_test, HERE, *range(100)) == ADDRESS.free
    assert under_test.wait(HERE, b"right") == ADDRESS.seconds


def test_the_guesses_of_a_known_address_are_paid_by_it_alone(clock: Clock) -> None:
    under_test = Brake(clock)
    under_test.passed(HERE)
    for _ in range(10 * NETWORK.free):
        assert guess(under_test, HERE, f"{clock.now}".encode()) == 1
        clock.now += ADDRESS.seconds
    clock.now -= ADDRESS.refill_seconds
    assert (
        sum(guess(under_test, f"192.0.2.{n}", *range(ADDRESS.free)) for n in range(2, 100))
        == NETWORK.free
    )


def test_being_forgotten_gives_nobody_a_guess(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brake, "_RECORDS", 2)
    under_test = Brake(clock)
    addresses = [f"10.{n}.0.1" for n in range(20)]
    assert all(guess(under_test, address, *range(99)) == ADDRESS.free for address in addresses)
    assert [under_test.wait(address, b"next") for address in addresses] == [ADDRESS.seconds] * 20
    clock.now += ADDRESS.refill_seconds
    guess(under_test, HERE, 1)
    assert len(under_test._addresses) == 2


def test_what_is_remembered_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "_RECORDS", 10)
    monkeypatch.setattr(brake, "_KNOWN", 10)
    under_test = Brake(clock)
    for number in range(3000):
        address = str(ipaddress.IPv6Address((0x2A00 << 112) + (number << 96)))
        guess(under_test, address, *range(3))
        under_test.passed(f"10.1.{number // 250}.{number % 250}")
        guess(under_test, f"10.1.{number // 250}.{number % 250}", 1)
        clock.now += 0.5
    most = (
        EVERYBODY.free
        + ADDRESS.refill_seconds / EVERYBODY.seconds
        + ADDRESS.refill_seconds / 0.5
        + 10
    )
    assert len(under_test._addresses) <= most
    assert len(under_test._networks) <= most
    assert len(under_test._known) == 10
    assert len(under_test._everybody.wrong) == brake._REMEMBERED
    under_test.passed(HERE)
    for number in range(1000):
        guess(under_test, HERE, number)
        clock.now += ADDRESS.seconds
    own = under_test._addresses.get(HERE)
    assert own is not None
    assert len(own.wrong) == brake._REMEMBERED_HERE


@examples()
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["10.0.0.1", "10.0.0.2", "10.0.1.1", "2a00::1", "2a00:0:0:1::1", "2a00:0:1::1", "x"]
            ),
            st.integers(1, 30),
            st.sampled_from([0.0, 0.5, 3.0, 60.0]),
            st.sampled_from([None, None, None, "passed"]),
        ),
        max_size=60,
    )
)
@example([(f"10.0.0.{n}", 10, 0.0, None) for n in range(1, 40)] * 2)
def test_no_order_of_guesses_gives_more_than_the_budgets(
    steps: list[tuple[str, int, float, str | None]],
) -> None:
    clock = Clock()
    under_test = Brake(clock)
    begun = clock.now
    looked_at: dict[tuple[Budget, str], int] = defaultdict(int)
    known: set[str] = set()
    fresh = 0
    for address, count, pause, event in steps:
        own, network = brake._places(address)
        if event:
            under_test.passed(address)
            known.add(own)
        for _ in range(count):
            fresh += 1
            attempt = b"%d" % fresh
            if under_test.wait(address, attempt) == 0:
                under_test.missed(address, attempt)
                looked_at[ADDRESS, own] += 1
                if own not in known:
                    looked_at[NETWORK, network] += 1
                    looked_at[EVERYBODY, ""] += 1
        clock.now += pause
        for (budget, place), number in looked_at.items():
            assert number <= budget.free + (clock.now - begun) / budget.seconds, place
        # Who waits as long as it was told is looked at.
        wait = under_test.wait(address, b"right")
        clock.now += wait
        assert under_test.wait(address, b"right") == pytest.approx(0, abs=1e-6)
        clock.now -= wait
