"""Sends an operation a second to the agent that OPLOG_URL names, and does not forget one while agents are away."""

import os
import signal
import threading
from itertools import count

from oplogc import Producer

INTERVAL = float(os.environ.get("INTERVAL", "1"))
"""Seconds between two operations."""


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with Producer(os.environ.get("OPLOG_URL", "http://localhost:8042"), overflow="drop_old") as producer:
        for number in count():
            producer.send("insert" if number < 10 else "update", "video", f"x{number % 10}", parents=["user/ada"])
            if stopped.wait(INTERVAL):
                break


if __name__ == "__main__":
    main()
