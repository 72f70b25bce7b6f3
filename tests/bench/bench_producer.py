"""Compare a call of ``Producer.send`` with a bare ``socket.sendto`` of the same bytes.

Both send to an unread UDP socket on this machine; the kernel drops the overflow. They alternate.
Prints the microseconds per call and their ratio. Other work on the machine can only slow them
down, so the least is closest to the truth.

    python -m tests.bench.bench_producer [--calls 20000] [--turns 7]
"""

import socket
import time
from collections.abc import Callable

from oplogc import Producer
from oplogc.wire.operation import encode
from tests.bench import kit


def microseconds(call: Callable[[int], object], calls: int) -> float:
    start = time.perf_counter()
    for number in range(calls):
        call(number)
    return (time.perf_counter() - start) / calls * 1e6


def main() -> None:
    parser = kit.parser(__doc__)
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
        address = sink.getsockname()
        with Producer(f"udp://127.0.0.1:{address[1]}") as producer:
            kinds = {
                "Producer.send": lambda: microseconds(
                    lambda n: producer.send("update", "video", names[n], parents=parents),
                    args.calls,
                ),
                "bare sendto": lambda: microseconds(
                    lambda n: bare.sendto(lines[n], address), args.calls
                ),
            }
            found = kit.in_turn(kinds, args.turns, "µs, ")
    figure = kit.compared("Producer.send over UDP", "µs", "Producer.send", found, float)
    kit.finish(f"{args.calls:,} calls", [figure], args)


if __name__ == "__main__":
    main()
