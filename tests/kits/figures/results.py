"""The stored results of the benchmarks: one JSON file, an entry for each benchmark."""

import json
import os
import platform
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.kits.figures.figure import Figure
from tests.kits.paths import ROOT

# So many cores in use by other programs spoil a figure.
BUSY = 0.2
_STAT = Path("/proc/stat")
STORE = ROOT / "docs/internals/benchmarks/results.json"


@dataclass(frozen=True)
class Conditions:
    """When and where a benchmark ran.

    ``load``: the load average of the minute before the first benchmark of the same command.
    ``busy``: cores that other work used in the second before this benchmark.
    """

    date: str
    load: float
    busy: float
    cpu: str
    cores: int
    memory_gib: float
    python: str
    sqlite: str
    kernel: str

    @classmethod
    def now(cls, load: float) -> "Conditions":
        before = _STAT.read_text()
        time.sleep(1.0)
        page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
        return cls(
            date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            load=round(load, 2),
            busy=busy_cores(before, _STAT.read_text(), os.cpu_count() or 1),
            cpu=cpu_model(Path("/proc/cpuinfo").read_text()) or platform.machine(),
            cores=len(os.sched_getaffinity(0)),
            memory_gib=round(page * pages / (1 << 30), 1),
            python=f"{platform.python_implementation()} {platform.python_version()}",
            sqlite=sqlite3.sqlite_version,
            kernel=f"{platform.system()} {platform.release().partition('-')[0]}",
        )

    @property
    def moment(self) -> str:
        """Return the date and how busy the machine was."""
        busy = ": a busy machine" if self.busy >= BUSY else ""
        return f"{self.date}, load average {self.load:g}, {self.busy:g} cores busy{busy}"

    @property
    def machine(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return (
            f"{self.cpu}, {cores}, {self.memory_gib:g} GiB, {self.python}, SQLite {self.sqlite},"
            f" {self.kernel}"
        )


@dataclass(frozen=True)
class Result:
    """The last run of a benchmark that gave figures, and the failure of a later run, if any.

    ``seconds``: duration of a run, 0 without figures.
    """

    figures: Sequence[Figure]
    conditions: Conditions
    seconds: float
    runs: int = 1
    failed: str = ""


Results = Mapping[str, Result]


def busy_cores(before: str, after: str, cores: int) -> float:
    """Return how many cores worked between two texts of /proc/stat."""
    first, second = (list(map(int, text.splitlines()[0].split()[1:9])) for text in (before, after))
    spent = [end - begin for begin, end in zip(first, second, strict=True)]
    _, _, _, idle, waiting, *_ = spent
    return round(cores * (1 - (idle + waiting) / (sum(spent) or 1)), 2)


def cpu_model(cpuinfo: str) -> str:
    """Return the model in the text of /proc/cpuinfo. Empty if the text names none."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return ""


def with_failure(old: Result | None, conditions: Conditions, why: str) -> Result:
    """Return the result after a failed run. The figures of an earlier run stay."""
    told = f"{conditions.date}: {why}"
    if old and old.figures:
        return replace(old, failed=told)
    return Result((), conditions, seconds=0.0, failed=told)


def load(path: Path = STORE) -> dict[str, Result]:
    """Return the stored results. Empty without a file."""
    if not path.exists():
        return {}
    return {name: _result(told) for name, told in json.loads(path.read_text("utf-8")).items()}


def _result(told: dict[str, Any]) -> Result:
    figures = [Figure(**each) for each in told.pop("figures")]
    return Result(figures, Conditions(**told.pop("conditions")), **told)


def store(results: Results, path: Path = STORE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {
            name: asdict(result) | {"figures": [each.stored() for each in result.figures]}
            for name, result in sorted(results.items())
        },
        indent=1,
        ensure_ascii=False,
    )
    path.write_text(f"{text}\n", encoding="utf-8")
