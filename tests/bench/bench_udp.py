"""UDP ingest: the highest even rate at which nothing is lost and all is committed within a second of the end.

Beside it, on the same machine with the same sender: the highest rate that a bare ``recv`` loop takes without loss. The
bare loop decodes nothing and stores nothing; it is the machine's own limit for a Python process.

    python tests/bench/bench_udp.py [--seconds 5] [--objects 5000]
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.agents import Agent

HERE = Path(__file__).parent
STEPS = (10_000, 20_000, 30_000, 40_000, 45_000, 50_000, 55_000, 60_000, 65_000, 70_000, 75_000, 80_000, 90_000,
         100_000, 120_000, 140_000, 160_000, 180_000, 200_000)  # fmt: skip
GRACE = 1.0


def send(port: int, rate: int, seconds: float, objects: int) -> tuple[int, float]:
    """How many were sent, and at which rate the sender really managed."""
    command = [
        sys.executable,
        str(HERE / "senders.py"),
        "paced",
        str(port),
        str(rate),
        str(seconds),
        str(objects),
    ]
    count, took = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(count), int(count) / float(took)


def against_agent(rate: int, seconds: float, objects: int) -> tuple[bool, float, str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Agent(Path(folder), "--capped-collection-size", "1GB") as agent,
    ):
        count, real = send(agent.udp_port, rate, seconds, objects)
        time.sleep(GRACE)
        status = agent.status()
        stored = status["events_ingested"]
        drops = f"kernel {status['events_dropped_kernel']:,}, queue {status['events_discarded']:,}"
        return stored == count, real, f"{stored:,} of {count:,} stored ({drops} dropped)"


def against_bare_loop(rate: int, seconds: float, objects: int) -> tuple[bool, float, str]:
    received = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(GRACE)
        done = threading.Event()

        def receive() -> None:
            nonlocal received
            while True:
                try:
                    sock.recv(65536)
                    received += 1
                except TimeoutError:
                    if done.is_set():
                        return

        thread = threading.Thread(target=receive)
        thread.start()
        count, real = send(sock.getsockname()[1], rate, seconds, objects)
        done.set()
        thread.join()
        return received == count, real, f"{received:,} of {count:,} received"


def highest(
    name: str,
    attempt: Callable[[int, float, int], tuple[bool, float, str]],
    args: argparse.Namespace,
) -> float:
    """Climb until a rate fails twice; the highest rate that held, as the sender measured it."""
    best = 0.0
    for rate in STEPS:
        for _ in range(2):
            held, real, told = attempt(rate, args.seconds, args.objects)
            print(f"  {name} {rate:>7,}/s: {told}, sent at {real:,.0f}/s", flush=True)
            if held:
                break
        if not held or real < 0.9 * rate:  # lost some, or the sender itself is at its end
            return max(best, real if held else 0.0)
        best = real
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each rate is held")
    parser.add_argument(
        "--objects", type=int, default=5_000, help="how many objects the operations are about"
    )
    args = parser.parse_args()
    agent = highest("agent", against_agent, args)
    bare = highest("bare recv loop", against_bare_loop, args)
    print(
        f"UDP ingest: {agent:,.0f} operations/s stored without loss, {agent / bare:.0%} of a bare recv loop ({bare:,.0f}/s)"
    )


if __name__ == "__main__":
    main()
