"""Parts that the benchmarks share: arguments, processes, and figures of a process."""

import argparse
import asyncio
import os
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path

from tests.kits.paths import ROOT as ROOT


def parser(docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of the benchmark."""
    return argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of this folder in a process of its own, from ROOT."""
    return [sys.executable, "-m", f"tests.bench.{module}", *map(str, arguments)]


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
    """Return the CPU time of all threads of a process, with a resolution of nanoseconds."""
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
