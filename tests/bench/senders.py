"""Send datagrams from a process of its own: ``python -m tests.bench.senders paced|stamped ...``."""

import json
import socket
import sys
import time
from collections.abc import Iterator

# Datagrams are sent in one burst per millisecond: a busy machine's clock keeps no shorter interval.
TICK = 0.001


def datagrams(count: int, objects: int) -> list[bytes]:
    """Return operations as a service sends them, on a fixed set of objects."""
    return [
        json.dumps(
            {
                "event": "update",
                "type": "video",
                "id": f"x{n * 7919 % objects:06x}",
                "parents": [f"user/{n % 997}"],
            }
        ).encode()
        for n in range(count)
    ]


def bursts(count: int, rate: int) -> Iterator[tuple[int, int]]:
    """Yield slices of ``count`` items, each when it is due at ``rate`` items per second."""
    start = time.perf_counter()
    sent = 0
    while sent < count:
        due = min(count, int((time.perf_counter() - start) * rate) + 1)
        if due > sent:
            yield sent, due
            sent = due
        else:
            time.sleep(TICK / 2)


def send_paced(port: int, rate: int, seconds: float, objects: int) -> None:
    """Send at an even rate. Print the number of operations and the seconds they took."""
    load = datagrams(int(rate * seconds), objects)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        start = time.perf_counter()
        for begin, end in bursts(len(load), rate):
            for raw in load[begin:end]:
                sock.send(raw)
        print(len(load), time.perf_counter() - start)


def send_stamped(port: int, rate: int, count: int) -> None:
    """Send operations with the send time as id: nanoseconds of the monotonic clock."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        for begin, end in bursts(count, rate):
            for _ in range(begin, end):
                sock.send(b'{"event":"update","type":"video","id":"%d"}' % time.monotonic_ns())


if __name__ == "__main__":
    mode, *numbers = sys.argv[1:]
    if mode == "paced":
        send_paced(int(numbers[0]), int(numbers[1]), float(numbers[2]), int(numbers[3]))
    else:
        send_stamped(int(numbers[0]), int(numbers[1]), int(numbers[2]))
