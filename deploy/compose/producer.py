"""Sends an operation per second to the agent at OPLOG_URL. Loses none while agents are stopped."""

import os
import signal
import sys
import time
from itertools import count

from oplogc import FlushError, Producer

INTERVAL = float(os.environ.get("INTERVAL", "1"))
"""Seconds between two operations."""


CLOSE_SECONDS = 5
"""How long the end may take while no agent answers. Docker kills a container after 10 s."""


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    producer = Producer(os.environ.get("OPLOG_URL", "http://localhost:8042"), overflow="drop_old")
    try:
        for number in count():
            producer.send(
                "insert" if number < 10 else "update",
                "video",
                f"x{number % 10}",
                parents=["user/ada"],
            )
            time.sleep(INTERVAL)
    except KeyboardInterrupt:  # Ctrl-C, or SIGTERM
        pass
    try:
        producer.close(timeout=CLOSE_SECONDS)
    except (FlushError, KeyboardInterrupt) as error:
        print(f"operations are lost. {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
