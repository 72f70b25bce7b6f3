"""End the servers of a run that was killed: ``python watch.py FOLDER``.

Each line of its input is a signal and a process id. When the input ends, it sends the signals and
removes the folder. A run that ends properly has ended its servers, and says so with ``done``.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # Ctrl-C reaches all processes of the terminal
    servers = []
    for line in sys.stdin:
        if line == "done\n":
            return
        servers.append(tuple(map(int, line.split())))
    for number, process in servers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
