"""``oplogd`` with a clock that a test moves: ``python -m tests.kits.clock.agent FLAGS``.

See ``MovedClock``.
"""

import asyncio
import mmap
import os
import time
from pathlib import Path

from oplogd.cli import main
from oplogd.clock import Clock, now_ms
from tests.kits.clock.moved import FILE, HELD_AT, OF_SERVER, PASSED, STANDS_AT, STEPPED

# A sleeper looks this often whether the test has moved the clock.
LOOK_SECONDS = 0.1


def moved_clock(path: Path, *, is_of_server: bool) -> Clock:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    numbers = memoryview(mapped).cast("q")

    def moved_ms(ms: int) -> int:
        return numbers[STANDS_AT] or ms + numbers[PASSED] + numbers[STEPPED]

    def boot() -> float:
        stands_at = numbers[STANDS_AT]
        ms = stands_at - numbers[STEPPED] if stands_at else now_ms() + numbers[PASSED]
        return ms / 1000

    def monotonic() -> float:
        return (numbers[HELD_AT] / 1000 or time.monotonic()) + numbers[PASSED] / 1000

    async def sleep(seconds: float) -> None:
        end = monotonic() + seconds
        await asyncio.sleep(min(seconds, LOOK_SECONDS))
        while (left := end - monotonic()) > 0:
            await asyncio.sleep(min(left, LOOK_SECONDS))

    return Clock(
        now_ms=lambda: moved_ms(now_ms()),
        monotonic=monotonic,
        boot=boot,
        sleep=sleep,
        server_ms=moved_ms if is_of_server else lambda told: told,
    )


if __name__ == "__main__":
    main(moved_clock(Path(os.environ[FILE]), is_of_server=OF_SERVER in os.environ))
