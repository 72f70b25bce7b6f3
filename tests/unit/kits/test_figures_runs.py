"""The benchmarks run one after another, and a failure of one does not lose the others."""

from collections.abc import Sequence

import pytest

from tests.kits.figures.catalog import Benchmark
from tests.kits.figures.figure import Figure
from tests.kits.figures.results import Conditions, Result
from tests.kits.figures.runs import BenchmarkError, progress, reason, run_all
from tests.kits.paths import ROOT

CONDITIONS = Conditions(
    "2026-01-31 12:00 UTC", 0.25, 0.01, "A CPU", 2, 7.8, "CPython 3.11.2", "3.40.1", "Linux 6.1"
)
OLD = Result([Figure("a", "s", [9.0])], CONDITIONS, 40.0)


class Benchmarks:
    """Stands for the processes: each run has the next value, ``broken`` ones fail."""

    def __init__(self, *broken: str) -> None:
        self._broken = broken
        self.kept: list[dict[str, Result]] = []
        self.modules: list[str] = []

    def run(self, benchmark: Benchmark) -> Sequence[Figure]:
        self.modules.append(benchmark.module)
        if benchmark.module in self._broken:
            raise BenchmarkError("no load")
        return [Figure("a", "s", [float(len(self.modules))])]

    def run_all(self, names: Sequence[str], repeats: int, results: dict[str, Result]) -> list[str]:
        def keep(found: dict[str, Result]) -> None:
            self.kept.append(dict(found))

        return run_all(names, repeats, results, self.run, lambda: CONDITIONS, keep)


def test_results_replace_those_of_the_same_benchmarks_only() -> None:
    results = {"udp": OLD, "size": OLD}
    assert Benchmarks().run_all(["udp", "http"], 1, results) == []
    assert results["size"] is OLD
    assert [results[name].figures[0].ours for name in ("udp", "http")] == [[1.0], [2.0]]
    assert results["udp"].runs == 1


def test_each_benchmark_runs_as_often_as_asked() -> None:
    benchmarks, results = Benchmarks(), dict[str, Result]()
    benchmarks.run_all(["udp", "http"], 2, results)
    assert benchmarks.modules == ["bench_udp", "bench_udp", "bench_http", "bench_http"]
    assert (results["http"].figures[0].ours, results["http"].runs) == ([3.0, 4.0], 2)


def test_the_others_run_and_are_kept_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    benchmarks, results = Benchmarks("bench_udp", "bench_size"), {"udp": OLD}
    assert benchmarks.run_all(["udp", "size", "http"], 1, results) == ["udp", "size"]
    assert [set(each) for each in benchmarks.kept] == [
        {"udp"}, {"udp", "size"}, {"udp", "size", "http"},
    ]  # fmt: skip
    assert (results["udp"].figures, results["udp"].failed[-7:]) == (OLD.figures, "no load")
    assert not results["size"].figures
    assert not results["http"].failed
    assert "udp failed: no load" in capsys.readouterr().err


def test_a_later_success_removes_the_failure() -> None:
    results = {"udp": OLD}
    Benchmarks("bench_udp").run_all(["udp"], 1, results)
    Benchmarks().run_all(["udp"], 1, results)
    assert not results["udp"].failed


def test_progress_tells_the_number_and_the_time_of_the_last_run() -> None:
    assert progress(3, 19, "udp", OLD, 1) == "3 of 19: bench_udp, about 40 s"
    assert progress(3, 19, "udp", OLD, 3) == "3 of 19: bench_udp, about 120 s"
    assert progress(1, 1, "filters", None, 1) == (
        "1 of 1: bench_fanout --filters 10000 --operations 100"
    )


@pytest.mark.parametrize(
    ("errors", "last"),
    [
        ("", ""),
        ("Traceback:\n  File\nValueError: no values\n\n", "ValueError: no values"),
        (f"cannot open {ROOT}/tests/bench/load", "cannot open tests/bench/load"),
        ("x" * 500, "x" * 160 + "…"),
    ],
)
def test_the_reason_is_the_last_line_of_the_errors(errors: str, last: str) -> None:
    assert reason(errors) == last
