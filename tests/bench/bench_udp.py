"""Compare the highest UDP rate that an agent stores without loss with that of a bare ``recv`` loop.

The rate rises in steps until operations are lost, or are not committed one second after the last
datagram. The bare loop has the same sender on the same machine; it decodes and stores nothing, so
it is the limit of the machine for a Python process. Prints both rates and their ratio.

    python -m tests.bench.bench_udp [--seconds 5] [--objects 5000]
"""

import argparse
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import kit
from tests.kits.agents.agent import Agent

STEPS = (
    *range(10_000, 40_000, 10_000),
    *range(40_000, 80_000, 5_000),
    *range(80_000, 100_000, 10_000),
    *range(100_000, 200_001, 20_000),
)
GRACE = 1.0


def send(port: int, rate: int, seconds: float, objects: int) -> tuple[int, float]:
    """Return the number of datagrams, and the rate that the sender reached."""
    command = kit.command("senders", "paced", port, rate, seconds, objects)
    sender = subprocess.run(command, check=True, capture_output=True, text=True, cwd=kit.ROOT)
    count, took = sender.stdout.split()
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
    """Raise the rate until one fails twice. Return the highest rate without loss, as measured."""
    best = 0.0
    for rate in STEPS:
        for _ in range(2):
            held, real, result = attempt(rate, args.seconds, args.objects)
            print(f"  {name} {rate:>7,}/s: {result}, sent at {real:,.0f}/s", flush=True)
            if held:
                break
        if not held or real < 0.9 * rate:  # operations were lost, or the sender is too slow
            return max(best, real if held else 0.0)
        best = real
    return best


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each rate")
    parser.add_argument(
        "--objects", type=int, default=5_000, help="number of objects in the operations"
    )
    args = parser.parse_args()
    agent = highest("agent", against_agent, args)
    bare = highest("bare recv loop", against_bare_loop, args)
    other = {"a bare recv loop": [bare]}
    figure = kit.Figure("highest rate without loss", "operations/s", [agent], other)
    kit.finish(f"UDP, {args.objects:,} objects", [figure], args)


if __name__ == "__main__":
    main()
