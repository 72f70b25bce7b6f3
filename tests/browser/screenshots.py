"""Pictures of the dashboard in both themes at two sizes: ``PYTHONPATH=. .venv/bin/python -m
tests.browser.screenshots FOLDER``.

An agent runs with a producer like the demo's and a few consumers, one of them behind.
``desktop-light.png`` is ``docs/dashboard.png``.
"""

import asyncio
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from playwright.async_api import async_playwright

from oplogd.demo import operations
from tests.browser.visit import ARGUMENTS, SIZES, Visit
from tests.kits.agents.agent import Agent
from tests.kits.contract.wire import RawStream, Target
from tests.kits.web.chromium import chromium

_HISTORY = 80_000
# Rates are averages over this time. After it the plots no longer show the preparation.
_QUIET_SECONDS = 11

# Time for the plots to fill.
_SECONDS = 150

_FILTERS: list[dict[str, str]] = [
    {},
    {"types": "video"},
    {"types": "video,comment"},
    {"parents": "user/ada,user/grace"},
    {"types": "comment", "parents": "user/ken"},
    {"types": "video"},
]


def _produce(port: int, stop: threading.Event) -> None:
    """Send a varying number of operations, a few dozen per second."""
    choose, level = random.Random(1), 40.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for operation in operations(seed=2):
            level = min(90.0, max(12.0, level + choose.gauss(0, 1.5)))
            if stop.wait(choose.expovariate(level)):
                return
            sock.sendto(json.dumps(operation).encode(), ("127.0.0.1", port))


async def _shoot(agent: Agent, folder: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        visits = {
            f"{size}-{theme}": Visit(browser, viewport=SIZES[size], color_scheme=theme)
            for size in SIZES
            for theme in ("light", "dark")
        }
        for visit in visits.values():
            await visit.__aenter__()
            await visit.open(f"{agent.url}/")
        await asyncio.sleep(_SECONDS)
        for name, visit in visits.items():
            await visit.page.screenshot(
                path=folder / f"{name}.png", full_page=name.startswith("phone")
            )
            visit.check()
        await browser.close()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as store,
        Agent(Path(store), "--ring-size", "20000") as agent,
        ExitStack() as stack,
    ):
        history = list(islice(operations(seed=1), _HISTORY))
        oldest = None
        for first in range(0, _HISTORY, 5_000):
            assert agent.post(history[first : first + 5_000]) == 200
            oldest = oldest or agent.status()["store"]["newest_id"]
        for query in _FILTERS:
            curl = [
                "curl",
                "-sN",
                "-H",
                "Accept: text/event-stream",
                f"{agent.url}/ops?" + "&".join(f"{k}={v}" for k, v in query.items()),
            ]
            process = stack.enter_context(subprocess.Popen(curl, stdout=subprocess.DEVNULL))
            stack.callback(process.kill)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": oldest or ""}
        stack.enter_context(
            RawStream(Target.of(agent), "/ops", headers, receive_buffer=4096)
        )  # nobody reads this stream
        stop = threading.Event()
        producer = threading.Thread(target=_produce, args=(agent.udp_port, stop))
        producer.start()
        time.sleep(_QUIET_SECONDS)
        try:
            asyncio.run(_shoot(agent, folder))
        finally:
            stop.set()
            producer.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
