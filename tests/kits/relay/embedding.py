"""A program that embeds a relay beside its own work: ``python -m tests.kits.relay.embedding``.

OPLOG_TEST_DELAY names a file. While it exists, handlers of LeaderRevoked and LeaderFenced wait.
"""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from oplog_relay import Event, LeaderFenced, LeaderRevoked, Relay
from oplog_relay.config.file import load
from oplog_relay.watch.progress import log_event

PERIOD = 0.01


async def serve(settings: Path) -> None:
    """Run a relay until SIGTERM."""
    relay = Relay(load(settings))
    delay = os.environ.get("OPLOG_TEST_DELAY")
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)

    async def wait(event: Event) -> None:
        if delay and isinstance(event, LeaderRevoked | LeaderFenced):
            name = type(event).__name__
            print(f"handler of {name} begins", file=sys.stderr, flush=True)
            while Path(delay).exists():  # noqa: ASYNC240
                await asyncio.sleep(PERIOD)
            print(f"handler of {name} is done", file=sys.stderr, flush=True)

    def fail(_: Event) -> None:
        raise ValueError("a handler of the service fails")

    relay.on_event(fail)
    relay.on_event(log_event)
    relay.on_event(wait)
    await relay.start()
    await asked_to_stop.wait()
    await relay.stop()
    await relay.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logging.getLogger("oplog_relay").setLevel(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(serve(Path(sys.argv[sys.argv.index("-f") + 1])))
