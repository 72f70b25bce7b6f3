"""Run benchmarks one after another and write docs/internals/benchmarks.md from their figures.

Without names all benchmarks run. The figures are stored beside the plots; the rows of other
benchmarks stay, with their own machine and date. A failed benchmark is named in the table, and its
earlier figures stay; the exit code is then 1.

    python -m tests.bench.report [http udp ...] [--runs 3] [--write-only]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kits.figures import page
from tests.kits.figures.catalog import BENCHMARKS, Benchmark
from tests.kits.figures.figure import Figure
from tests.kits.figures.results import Conditions, Result, load, store
from tests.kits.figures.runs import BenchmarkError, reason, run_all
from tests.kits.paths import ROOT


def run(benchmark: Benchmark) -> list[Figure]:
    """Run a benchmark, whose lines go to the terminal. Raises BenchmarkError."""
    with tempfile.TemporaryDirectory() as folder:
        figures, errors = Path(folder) / "figures.json", Path(folder) / "errors"
        module = f"tests.bench.{benchmark.module}"
        command = [sys.executable, "-m", module, *benchmark.arguments, "--json", str(figures)]
        with errors.open("wb") as file:
            code = subprocess.run(command, cwd=ROOT, stderr=file, check=False).returncode
        told = errors.read_text("utf-8", "replace")
        if code:
            print(told, file=sys.stderr, flush=True)
            raise BenchmarkError(reason(told) or f"exit code {code}")
        if not figures.exists():
            raise BenchmarkError("it wrote no figures")
        return [Figure(**each) for each in json.loads(figures.read_text("utf-8"))]


def keep(results: dict[str, Result]) -> None:
    store(results)
    page.write(load())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--runs", type=int, default=1, help="runs of each benchmark")
    parser.add_argument(
        "--write-only", action="store_true", help="write the page from the stored figures"
    )
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if args.runs < 1:
        parser.error("--runs: at least 1")
    results = load()
    page.write(results)  # before a long run, so that an error of the page is told at once
    failed = []
    if not args.write_only:
        average = os.getloadavg()[0]
        print(f"load average of the last minute: {average:.2f}", flush=True)
        names = args.names or list(BENCHMARKS)
        failed = run_all(names, args.runs, results, run, lambda: Conditions.now(average), keep)
    print(f"{page.PAGE.relative_to(ROOT)} is written")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
