"""Run benchmarks one after another. A failed one does not end the others."""

import sys
import time
from collections.abc import Callable, Sequence

from tests.kits.figures.catalog import BENCHMARKS, Benchmark
from tests.kits.figures.figure import Figure, merged
from tests.kits.figures.results import Conditions, Result, with_failure
from tests.kits.paths import ROOT

_LONGEST_REASON = 160

Run = Callable[[Benchmark], Sequence[Figure]]


class BenchmarkError(Exception):
    """A benchmark ended with an error."""


def run_all(
    names: Sequence[str],
    repeats: int,
    results: dict[str, Result],
    run: Run,
    conditions: Callable[[], Conditions],
    keep: Callable[[dict[str, Result]], None],
) -> list[str]:
    """Put the results of benchmarks among ``results``. Return the names of failed ones.

    ``run`` may raise BenchmarkError. ``keep`` is called with all results after each benchmark.
    """
    failed = []
    for number, name in enumerate(names, start=1):
        print(progress(number, len(names), name, results.get(name), repeats), flush=True)
        results[name] = measure(name, repeats, results.get(name), run, conditions())
        if results[name].failed:
            failed.append(name)
        keep(results)
    return failed


def measure(
    name: str, repeats: int, old: Result | None, run: Run, conditions: Conditions
) -> Result:
    """Return the result of some runs. If one fails, the old result with the failure."""
    figures: Sequence[Figure] = ()
    began = time.monotonic()
    try:
        for _ in range(repeats):
            figures = merged(figures, run(BENCHMARKS[name]))
    except BenchmarkError as error:
        print(f"{name} failed: {error}", file=sys.stderr, flush=True)
        return with_failure(old, conditions, str(error))
    seconds = (time.monotonic() - began) / repeats
    return Result(figures, conditions, round(seconds, 1), repeats)


def progress(number: int, total: int, name: str, old: Result | None, repeats: int) -> str:
    """Return such as ``3 of 19: bench_udp, about 40 s``. The time is that of the last run."""
    benchmark = BENCHMARKS[name]
    about = f", about {old.seconds * repeats:.0f} s" if old and old.figures else ""
    return f"{number} of {total}: {' '.join((benchmark.module, *benchmark.arguments))}{about}"


def reason(errors: str) -> str:
    """Return the last line of an error output, without the folder of the checkout."""
    lines = errors.replace(f"{ROOT}/", "").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last if len(last) <= _LONGEST_REASON else f"{last[:_LONGEST_REASON]}…"
