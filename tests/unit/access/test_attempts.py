"""The numbers of different wrong passwords that an address, a network and everybody may try."""

import ipaddress
from collections import defaultdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.host.senders import units_of
from oplogd.web.access.guesses.attempts import (
    ADDRESS,
    CELL,
    EVERYBODY,
    NETWORK,
    AttemptLimiter,
    MemoryBounds,
)
from oplogd.web.access.guesses.buckets import AttemptLimit
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.properties import examples

REFILL_SECONDS = ADDRESS.burst * ADDRESS.seconds
HERE, THERE = "192.0.2.1", "198.51.100.2"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def few_cells(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a number of cells that hundreds of networks fill."""
    monkeypatch.setattr("oplogd.web.access.guesses.attempts.CELLS", 64)
    return 64


def guess(limiter: AttemptLimiter, address: str, *attempts: bytes | int) -> int:
    """Try attempts until one is not checked. Return how many were checked."""
    for count, each in enumerate(attempts):
        attempt = each if isinstance(each, bytes) else f"{address} {each}".encode()
        if limiter.wait_seconds(address, attempt):
            return count
        limiter.failed(address, attempt)
    return len(attempts)


def spend_everybody(limiter: AttemptLimiter) -> None:
    """Guess from distant networks, none of which reaches its own limit."""
    checked = sum(
        guess(limiter, f"2a00:{number:x}::1", *range(ADDRESS.burst))
        for number in range(EVERYBODY.burst // ADDRESS.burst)
    )
    assert checked == EVERYBODY.burst


def test_after_its_burst_an_address_must_wait_and_others_need_not(clock: VirtualClock) -> None:
    limiter = AttemptLimiter(clock.monotonic)
    assert guess(limiter, HERE, *range(ADDRESS.burst + 1)) == ADDRESS.burst
    assert limiter.wait_seconds(HERE, b"next") == ADDRESS.seconds
    assert limiter.wait_seconds(THERE, b"next") == 0
    clock.seconds += ADDRESS.seconds - 1
    assert limiter.wait_seconds(HERE, b"next") == pytest.approx(1)
    clock.seconds += 1
    assert guess(limiter, HERE, 100, 101) == 1
    assert limiter.wait_seconds(HERE, b"next") == pytest.approx(ADDRESS.seconds)


def test_the_same_wrong_password_again_and_again_costs_one_guess(clock: VirtualClock) -> None:
    limiter = AttemptLimiter(clock.monotonic)
    assert guess(limiter, HERE, *[7] * 1000) == 1000
    assert guess(limiter, HERE, *range(ADDRESS.burst)) == ADDRESS.burst  # one of them is 7
    assert limiter.wait_seconds(HERE, f"{HERE} 7".encode()) == 0
    assert limiter.wait_seconds(HERE, b"right or wrong") > 0


def test_a_thousand_consumers_with_one_old_password_make_one_guess(clock: VirtualClock) -> None:
    limiter = AttemptLimiter(clock.monotonic)
    fleet = [f"10.{n // 250}.{n % 250}.1" for n in range(1000)] + [
        f"192.0.2.{n}" for n in range(1, 250)
    ]
    for _ in range(3):
        assert all(guess(limiter, address, b"an old one") == 1 for address in fleet)
    assert len(limiter.addresses) == 1
    assert guess(limiter, "192.0.2.9", *range(ADDRESS.burst)) == ADDRESS.burst
    assert guess(limiter, "192.0.2.7", b"an old one", *range(ADDRESS.burst)) == ADDRESS.burst + 1


def test_a_long_pause_gives_back_at_most_the_burst(clock: VirtualClock) -> None:
    limiter = AttemptLimiter(clock.monotonic)
    guess(limiter, HERE, 1)
    clock.seconds += 1_000_000
    assert guess(limiter, HERE, *range(100, 200)) == ADDRESS.burst


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
    clock: VirtualClock, one: str, other: str, same: bool
) -> None:
    limiter = AttemptLimiter(clock.monotonic)
    guess(limiter, one, *range(ADDRESS.burst))
    assert (limiter.wait_seconds(other, b"next") > 0) is same


@pytest.mark.parametrize(
    ("network", "outside"),
    [
        ("192.0.2.{:d}", "192.0.3.1"),
        ("2001:db8:1:{:x}::1", "2001:db8:2::1"),
        ("::ffff:192.0.2.{:d}", "192.0.3.1"),
    ],
)
def test_the_addresses_of_one_network_share_its_limit(
    clock: VirtualClock, network: str, outside: str
) -> None:
    limiter = AttemptLimiter(clock.monotonic)
    addresses = [network.format(number) for number in range(1, 251)]
    assert (
        sum(guess(limiter, address, *range(ADDRESS.burst)) for address in addresses)
        == NETWORK.burst
    )
    assert limiter.wait_seconds(network.format(255), b"next") == NETWORK.seconds
    assert limiter.wait_seconds(outside, b"next") == 0
    clock.seconds += NETWORK.seconds
    assert sum(guess(limiter, address, b"%d" % n) for n, address in enumerate(addresses)) == 1


def test_any_number_of_networks_share_the_limits_of_everybody_and_of_the_cells(
    clock: VirtualClock, few_cells: int
) -> None:
    limiter = AttemptLimiter(clock.monotonic, key=b"whose cells 600 networks all meet")
    spend_everybody(limiter)
    checked = sum(
        guess(limiter, f"2b00:{number:x}::1", *range(CELL.burst + 1)) for number in range(600)
    )
    assert checked == few_cells * CELL.burst
    assert limiter.wait_seconds(HERE, b"next") == EVERYBODY.seconds
    clock.seconds += 10 * EVERYBODY.seconds
    assert (
        sum(guess(limiter, f"2c00:{number:x}::1", *range(ADDRESS.burst)) for number in range(600))
        == 10
    )


def test_guesses_of_strangers_do_not_lock_out_new_addresses(clock: VirtualClock) -> None:
    limiter = AttemptLimiter(clock.monotonic, key=b"so that no two of these share a cell")
    spend_everybody(limiter)
    right = 0
    for step in range(140):
        guess(limiter, f"203.0.{step % 3}.{step % 250 + 1}", step)
        if step % 10 == 0:
            right += limiter.wait_seconds(f"10.{step}.0.1", b"right") == 0
        clock.seconds += 0.9
    assert right == 14


def test_a_network_has_few_checks_while_strangers_use_up_the_common_limit(
    clock: VirtualClock,
) -> None:
    limiter = AttemptLimiter(clock.monotonic, key=b"so that no two of these share a cell")
    spend_everybody(limiter)
    assert guess(limiter, HERE, *range(ADDRESS.burst)) == CELL.burst
    assert limiter.wait_seconds("192.0.2.99", b"next") == EVERYBODY.seconds
    assert limiter.wait_seconds(THERE, b"next") == 0


@pytest.mark.parametrize("attack", ["everybody", "network"])
def test_an_address_that_gave_the_right_password_is_not_locked_out_by_others(
    clock: VirtualClock, attack: str
) -> None:
    limiter = AttemptLimiter(clock.monotonic)
    limiter.succeeded(HERE)
    if attack == "everybody":
        spend_everybody(limiter)
    else:
        assert (
            sum(guess(limiter, f"192.0.2.{n}", *range(ADDRESS.burst)) for n in range(2, 100))
            == NETWORK.burst
        )
        assert limiter.wait_seconds("192.0.2.200", b"right") > 0
    assert limiter.wait_seconds(HERE, b"right") == 0
    # Its own guesses count, and only for it: others at the same address gain little.
    assert guess(limiter, HERE, *range(100)) == ADDRESS.burst
    assert limiter.wait_seconds(HERE, b"right") == ADDRESS.seconds


def test_the_guesses_of_a_known_address_count_for_it_alone(clock: VirtualClock) -> None:
    limiter = AttemptLimiter(clock.monotonic)
    limiter.succeeded(HERE)
    for _ in range(10 * NETWORK.burst):
        assert guess(limiter, HERE, f"{clock.seconds}".encode()) == 1
        clock.seconds += ADDRESS.seconds
    clock.seconds -= REFILL_SECONDS
    assert (
        sum(guess(limiter, f"192.0.2.{n}", *range(ADDRESS.burst)) for n in range(2, 100))
        == NETWORK.burst
    )


def test_forgetting_an_address_gives_away_no_guess(clock: VirtualClock) -> None:
    limiter = AttemptLimiter(clock.monotonic, MemoryBounds(buckets=2))
    addresses = [f"10.{n}.0.1" for n in range(20)]
    assert all(guess(limiter, address, *range(99)) == ADDRESS.burst for address in addresses)
    assert [limiter.wait_seconds(address, b"next") for address in addresses] == [
        ADDRESS.seconds
    ] * 20
    clock.seconds += REFILL_SECONDS
    guess(limiter, HERE, 1)
    assert len(limiter.addresses) == 2


@pytest.mark.parametrize("others", [1, 2])
def test_an_address_that_is_often_right_stays_known(clock: VirtualClock, others: int) -> None:
    """``others``: how many new addresses are right between two times of this one."""
    limiter = AttemptLimiter(clock.monotonic, MemoryBounds(known=6))
    limiter.succeeded(HERE)
    for number in range(0, 30 * others, others):
        for other in range(number, number + others):
            limiter.succeeded(f"10.0.0.{other}")
        assert HERE in limiter.known
        limiter.succeeded(HERE)


def test_the_memory_of_the_limiter_is_bounded(clock: VirtualClock, few_cells: int) -> None:
    bounds = MemoryBounds(buckets=10, known=10)
    limiter = AttemptLimiter(clock.monotonic, bounds)
    for number in range(1500):
        address = str(ipaddress.IPv6Address((0x2A00 << 112) + (number << 96)))
        guess(limiter, address, *range(3))
        limiter.succeeded(f"10.1.{number // 250}.{number % 250}")
        guess(limiter, f"10.1.{number // 250}.{number % 250}", 1)
        clock.seconds += 0.5
    most = (
        EVERYBODY.burst
        + few_cells * CELL.burst
        + REFILL_SECONDS / EVERYBODY.seconds
        + REFILL_SECONDS / 0.5
        + 10
    )
    assert most < 1500
    assert len(limiter.addresses) <= most
    assert len(limiter.networks) <= most
    assert len(limiter.known) == bounds.known
    assert len(limiter.everybody.wrong) == bounds.remembered
    limiter.succeeded(HERE)
    for number in range(1000):
        guess(limiter, HERE, number)
        clock.seconds += ADDRESS.seconds
    bucket = limiter.addresses.get(HERE)
    assert bucket is not None
    assert len(bucket.wrong) == bounds.remembered_per_address


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
def test_no_order_of_guesses_exceeds_the_limits(
    steps: list[tuple[str, int, float, str | None]],
) -> None:
    clock = VirtualClock()
    limiter = AttemptLimiter(clock.monotonic)
    begun = clock.seconds
    checked: dict[tuple[AttemptLimit, str], int] = defaultdict(int)
    known: set[str] = set()
    fresh = 0
    networks = {units_of(each)[1] for each, *_ in steps}
    for address, count, pause, event in steps:
        own, network = units_of(address)
        if event:
            limiter.succeeded(address)
            known.add(own)
        for _ in range(count):
            fresh += 1
            attempt = b"%d" % fresh
            if limiter.wait_seconds(address, attempt) == 0:
                limiter.failed(address, attempt)
                checked[ADDRESS, own] += 1
                if own not in known:
                    checked[NETWORK, network] += 1
                    checked[EVERYBODY, ""] += 1
        clock.seconds += pause
        for (limit, unit), number in checked.items():
            in_cells = len(networks) * CELL.burst if limit is EVERYBODY else 0
            most = limit.burst + in_cells + (clock.seconds - begun) / limit.seconds
            assert number <= most, unit
        # After the announced wait an attempt is checked.
        wait = limiter.wait_seconds(address, b"right")
        clock.seconds += wait
        assert limiter.wait_seconds(address, b"right") == pytest.approx(0, abs=1e-6)
        clock.seconds -= wait
