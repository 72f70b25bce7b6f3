"""Spark's Python workers as forks of a process that has imported what they need.

Spark starts a Python for each kind of worker of each session, and forks it for some. Each worker
would import pandas, pyarrow and the data source anew.
"""

import gc
import importlib
import pkgutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kits.paths import ROOT
from tests.kits.processes.parent import Parent, end_with_starter, run_to_end

_MODULES = (
    "oplog_sync.dump",
    "oplog_sync.source",
    "oplogd.store.mongo",
    "pandas",
    "pyarrow.dataset",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.worker",
)


@contextmanager
def worker_python(folder: Path) -> Iterator[Path]:
    """Yield a program for PYSPARK_PYTHON: its workers are forks until the block ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        requests.bind("")  # Linux chooses a name that is no path
        address = requests.getsockname()[1:].decode()
        parent = subprocess.Popen(
            [sys.executable, "-m", "tests.kits.spark.workers", str(requests.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[requests.fileno()],
        )
    program = folder / "python"
    launcher = Path(__file__).with_name("python.py")
    program.write_text(f"""#!/bin/sh
        [ "$1" != -m ] || set -- -I -S "{launcher}" {address} "$@"
        exec "{sys.executable}" "$@"
    """)
    program.chmod(0o755)
    try:
        yield program
    finally:
        parent.terminate()  # its forks end with it
        parent.wait()


def _preload() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    kinds = importlib.import_module("pyspark.sql.worker")
    for module in pkgutil.iter_modules(kinds.__path__, "pyspark.sql.worker."):
        importlib.import_module(module.name)


def main() -> None:
    end_with_starter()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _preload()
    gc.collect()
    gc.freeze()  # workers collect after each task
    # Spark's daemon begins a group of processes: a process with a session of its own cannot.
    program = Parent(socket.socket(fileno=int(sys.argv[1])), has_sessions=False).serve()
    if program is not None:
        run_to_end(program)


if __name__ == "__main__":
    main()
