"""``oplogd`` with clocks that a test moves: ``python -m tests.e2e.moved_agent FLAGS``.

OPLOG_TEST_CLOCK names the file of a ``MovingClock``. It moves the wall clock of this process, and
the clock of MongoDB's server as this agent sees it. That is much faster than libfaketime, which
reads the file for durations, too.
"""

import os
import time
from datetime import datetime
from pathlib import Path

from oplogd.cli import main

_CLOCK = Path(os.environ["OPLOG_TEST_CLOCK"])
_real_ns = time.time_ns


def moved_ns(now_ns: int) -> int:
    text = _CLOCK.read_text()
    if text.startswith(("+", "-")):
        return now_ns + int(float(text) * 1e9)
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000_000


def move_server() -> None:
    from oplogd.store.mongo.link import Link

    real = Link.now_ms

    async def now_ms(link: Link) -> int:
        return moved_ns(await real(link) * 1_000_000) // 1_000_000

    setattr(Link, "now_ms", now_ms)  # noqa: B010


if __name__ == "__main__":
    time.time_ns = lambda: moved_ns(_real_ns())
    time.time = lambda: moved_ns(_real_ns()) / 1e9
    if "OPLOG_TEST_CLOCK_OF_SERVER" in os.environ:
        move_server()
    main()
