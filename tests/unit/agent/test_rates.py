"""Rates are averages over the last ten seconds."""

from oplogd.watch.rates import SECONDS, RateMeter, Rates
from tests.kits.clock.virtual import VirtualClock


class Totals:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.counts = (0, 0, 0)
        self.meter = RateMeter(lambda: self.counts, self.clock.clock)
        self.meter.measure()

    def measure(self, seconds: float, received: int, ingested: int, sent: int) -> Rates:
        self.clock.move(seconds)
        before = self.counts
        self.counts = (before[0] + received, before[1] + ingested, before[2] + sent)
        self.meter.measure()
        return self.meter.rates


def test_the_first_measurement_gives_no_rate() -> None:
    assert Totals().meter.rates == Rates(0.0, 0.0, 0.0)


def test_a_rate_is_a_difference_by_the_time_that_passed() -> None:
    assert Totals().measure(2, 10, 5, 1) == Rates(5.0, 2.5, 0.5)


def test_measurements_older_than_ten_seconds_do_not_count() -> None:
    totals = Totals()
    totals.measure(1, 1000, 1000, 1000)
    for _ in range(SECONDS):
        rates = totals.measure(1, 3, 2, 0)
    assert rates == Rates(3.0, 2.0, 0.0)
