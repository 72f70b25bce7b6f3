"""Programs that print a line at a point and wait there, until a test kills them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kits.paths import ROOT
from tests.kits.processes.forked import start


@contextmanager
def stopped(module: str, *arguments: object, line: bytes) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a module until it has printed this line. At the end it is killed."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with start(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == line
            yield process
        finally:
            process.kill()
