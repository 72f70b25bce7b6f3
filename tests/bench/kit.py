"""Parts that the benchmarks share: arguments, turns, processes, and figures of a process."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.kits.figures.figure import Figure as Figure
from tests.kits.figures.figure import shown
from tests.kits.paths import ROOT as ROOT
from tests.kits.processes.children import child_pids

T = TypeVar("T")


def parser(docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of the benchmark."""
    made = argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a file")
    return made


def in_turn(
    kinds: Mapping[str, Callable[[], T]], repeats: int, title: str = ""
) -> dict[str, list[T]]:
    """Measure and print each kind in turn, so that a change of the machine meets all."""
    found: dict[str, list[T]] = {name: [] for name in kinds}
    for _ in range(repeats):
        for name, measure in kinds.items():
            value = measure()
            found[name].append(value)
            text = shown(value) if isinstance(value, float) else value
            print(f"  {title}{name}: {text}", flush=True)
    return found


def compared(
    name: str,
    unit: str,
    ours: str,
    found: Mapping[str, Sequence[T]],
    value: Callable[[T], float],
) -> Figure:
    """Return the figure of the kind ``ours`` beside the other kinds."""
    values = {kind: [value(each) for each in repeats] for kind, repeats in found.items()}
    return Figure(name, unit, values.pop(ours), values)


def finish(heading: str, figures: Sequence[Figure], args: argparse.Namespace) -> None:
    """Print the figures of a benchmark. Write them as JSON if its command asks for it."""
    print(f"{heading}:", *figures, sep="\n  ", flush=True)
    if args.json:
        args.json.write_text(json.dumps([figure.stored() for figure in figures]), "utf-8")


def command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of this folder in a process of its own, from ROOT."""
    return [sys.executable, "-m", f"tests.bench.{module}", *map(str, arguments)]


@contextmanager
def serving(module: str, *arguments: object) -> Iterator[tuple[int, int]]:
    """Run a server of this folder, which prints its port. Yield its port and process id."""
    with subprocess.Popen(
        command(module, *arguments), stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


async def send_stamped(udp_port: int, rate: int, count: int) -> Process:
    """Start a process that sends ``count`` operations at ``rate`` per second. See ``age_ms``."""
    return await asyncio.create_subprocess_exec(
        *command("senders", "stamped", udp_port, rate, count), cwd=ROOT
    )


def age_ms(block: bytes) -> float | None:
    """Return the time since the send of the first stamped operation in ``block``, else None."""
    start = block.find(b'"id":"') + 6
    if start < 6:
        return None
    return (time.monotonic_ns() - int(block[start : block.index(b'"', start)])) / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process and of its children that run now.

    Its resolution is nanoseconds.
    """
    return sum(map(_cpu_seconds, [pid, *child_pids(pid)]))


def _cpu_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def peak_mib(pid: int) -> float:
    """Return the largest resident memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def own_resident_mib() -> float:
    return resident_mib(os.getpid())


def private_mib(pid: int) -> float:
    """Return the memory that a process has written and shares with no other."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (line,) = (line for line in rollup.splitlines() if line.startswith("Private_Dirty:"))
    return int(line.split()[1]) / 1024
