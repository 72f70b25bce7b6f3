"""The statistic of the benchmarks, and the results that they store."""

import math
from pathlib import Path

import pytest

from tests.kits.figures.catalog import BENCHMARKS
from tests.kits.figures.figure import Figure, Spread, merged, shown
from tests.kits.figures.results import (
    Conditions,
    Result,
    busy_cores,
    cpu_model,
    load,
    store,
    with_failure,
)

CONDITIONS = Conditions(
    "2026-01-31 12:00 UTC", 0.25, 0.01, "A CPU", 2, 7.8, "CPython 3.11.2", "3.40.1", "Linux 6.1"
)
LATER = Conditions(
    "2026-02-28 12:00 UTC", 3.5, 1.2, "Another CPU", 8, 16.0, "CPython 3.12.1", "3.45", "Linux 6.8"
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.031249, "0.0312"), (0.5, "0.500"), (1, "1"), (1.0049, "1"), (9.996, "10"),
        (51.26, "51.3"), (100, "100"), (999.6, "1,000"), (12_345, "12,300"),
        (1e-9, "0.00000000100"),
        (2_000_000, "2,000,000"), (-3.14159, "-3.14"),
    ],
)  # fmt: skip
def test_a_value_is_shown_with_three_digits(value: float, text: str) -> None:
    assert shown(value) == text


def test_a_spread_is_the_median_with_the_least_and_the_largest() -> None:
    assert Spread.of([5, 1, 3]) == (3, 1, 5)
    assert Spread.of([4, 1]) == (2.5, 1, 4)
    assert str(Spread.of([5000, 4900, 5100])) == "5,000 (4,900 to 5,100)"
    assert str(Spread.of([7])) == "7"


def test_the_ratio_is_that_of_each_turn() -> None:
    figure = Figure("posts", "requests/s", [10, 20, 30], {"other": [20, 10, 10]})
    # The ratios are 0.5, 2 and 3. That of the medians is 2, too, but it has no spread.
    assert figure.ratio("other") == Spread(2, 0.5, 3)


def test_the_ratio_is_that_of_the_medians_if_the_programs_did_not_take_turns() -> None:
    figure = Figure("posts", "requests/s", [10, 20, 30], {"other": [40]})
    assert figure.ratio("other") == Spread(0.5, 0.5, 0.5)


def test_there_is_no_ratio_to_zero() -> None:
    figure = Figure("lost", "events", [0], {"other": [0]})
    assert figure.ratio("other") is None
    assert figure.comparisons() == ["beside other: 0"]


def test_a_figure_tells_its_ratios() -> None:
    figure = Figure("posts", "requests/s", [10, 20], {"other": [40, 40], "third": [10, 20]})
    assert str(figure) == (
        "posts: 15 (10 to 20) requests/s; 0.375 (0.250 to 0.500) of other: 40;"
        " 1 of third: 15 (10 to 20)"
    )


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf]])
def test_a_figure_needs_finite_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match="posts: no finite values of the oplog"):
        Figure("posts", "requests/s", values)
    with pytest.raises(ValueError, match="posts: no finite values of other"):
        Figure("posts", "requests/s", [1], {"other": values})


def test_more_of_a_rate_is_better_and_less_of_anything_else() -> None:
    assert Figure("posts", "requests/s", [1]).more_is_better
    assert not Figure("memory", "MiB", [1]).more_is_better


def test_the_figures_of_two_runs_have_the_values_of_both() -> None:
    first = [Figure("a", "s", [1], {"x": [2], "y": [3]}), Figure("b", "s", [4])]
    second = [Figure("a", "s", [5], {"x": [6]}), Figure("c", "s", [7])]
    assert merged(first, second) == [
        Figure("a", "s", [1, 5], {"x": [2, 6], "y": [3]}),
        Figure("b", "s", [4]),
        Figure("c", "s", [7]),
    ]
    assert merged((), first) == first


def result(value: float, conditions: Conditions = CONDITIONS) -> Result:
    return Result([Figure("a", "s", [value], {"x": [2.0]})], conditions, 40.0)


def test_results_are_stored_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.json"
    assert load(path) == {}
    results = {"udp": result(1.5), "http": with_failure(result(2.0), LATER, "no load")}
    store(results, path)
    assert load(path) == results
    text = path.read_text(encoding="utf-8")
    store(load(path), path)
    assert path.read_text(encoding="utf-8") == text
    assert len(BENCHMARKS) * len(text) < 100_000


def test_stored_values_have_four_digits(tmp_path: Path) -> None:
    store({"udp": result(12345.678)}, tmp_path / "results.json")
    assert load(tmp_path / "results.json")["udp"].figures[0].ours == [12350]


def test_a_failure_keeps_the_figures_and_conditions_of_an_earlier_run() -> None:
    old = result(1.5)
    failed = with_failure(old, LATER, "no load")
    assert (failed.figures, failed.conditions) == (old.figures, CONDITIONS)
    assert failed.failed == "2026-02-28 12:00 UTC: no load"


def test_a_failure_without_an_earlier_run_has_no_figures() -> None:
    first = with_failure(None, CONDITIONS, "no load")
    assert (first.figures, first.failed) == ((), "2026-01-31 12:00 UTC: no load")
    again = with_failure(first, LATER, "no Go")
    assert (again.conditions, again.failed) == (LATER, "2026-02-28 12:00 UTC: no Go")


def test_the_model_of_the_cpu_is_told_if_the_system_names_one() -> None:
    assert (
        cpu_model("processor\t: 0\nmodel name\t: A  CPU @ 2 GHz\nmodel\t: 1\n") == "A CPU @ 2 GHz"
    )
    assert cpu_model("processor\t: 0\nCPU part\t: 0xd0c\n") == ""


def test_busy_cores_are_the_share_of_the_time_that_was_not_idle() -> None:
    before = "cpu  100 0 100 1000 50 0 0 0 0 0\ncpu0 0\n"
    after = "cpu  120 0 110 1140 60 5 5 10 0 0\n"
    # 200 ticks, of which 150 were idle or waited for a disk.
    assert busy_cores(before, after, 4) == 1.0
    assert busy_cores(before, before, 4) == 4.0


def test_conditions_tell_how_busy_the_machine_was() -> None:
    assert CONDITIONS.moment == "2026-01-31 12:00 UTC, load average 0.25, 0.01 cores busy"
    assert LATER.moment.endswith("load average 3.5, 1.2 cores busy: a busy machine")


def test_conditions_name_the_machine() -> None:
    assert CONDITIONS.machine == (
        "A CPU, 2 cores, 7.8 GiB, CPython 3.11.2, SQLite 3.40.1, Linux 6.1"
    )
