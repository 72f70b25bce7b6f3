"""What a call of ``Producer.send`` costs beside a bare ``socket.sendto`` of the same bytes.

Both go to a UDP socket on this machine that nobody reads (the kernel drops what does not fit), in turns, and the best
turn of each counts, as other work on the machine can only slow them down.

    python tests/bench/bench_producer.py [--calls 20000] [--turns 7]
"""

import argparse
import socket
import time
from collections.abc import Callable

from oplogc import Producer
from oplogc.operation import encode


def microseconds(call: Callable[[int], object], calls: int) -> float:
    start = time.perf_counter()
    for number in range(calls):
        call(number)
    return (time.perf_counter() - start) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    names = [f"x{number:06x}" for number in range(args.calls)]
    parents = ["user/x3kd2"]
    lines = [encode("update", "video", name, parents) for name in names]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bare,
    ):
        sink.bind(("127.0.0.1", 0))
        where = sink.getsockname()
        with Producer(f"udp://127.0.0.1:{where[1]}") as producer:
            turns = [
                (
                    microseconds(
                        lambda n: producer.send("update", "video", names[n], parents=parents),
                        args.calls,
                    ),
                    microseconds(lambda n: bare.sendto(lines[n], where), args.calls),
                )
                for _ in range(args.turns)
            ]
    ours, theirs = (min(column) for column in zip(*turns, strict=True))
    print(
        f"Producer.send over UDP: {ours:.1f} µs a call, {ours / theirs:.1f} times a bare sendto ({theirs:.1f} µs)"
    )


if __name__ == "__main__":
    main()
