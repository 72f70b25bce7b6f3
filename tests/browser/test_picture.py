"""A busy agent on the dashboard. OPLOG_UPDATE_DOCS=1 makes the pictures of the docs again."""

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, Page, expect

from oplogd.demo import operations
from tests.browser.visit import Visit
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.contract.wire import RawStream, Target
from tests.kits.documents import pages

pytestmark = pytest.mark.asyncio(loop_scope="session")

PICTURES = {"light": pages.PICTURE, "dark": pages.DARK_PICTURE}
WRITES = bool(os.environ.get("OPLOG_UPDATE_DOCS"))

# Between two polls of /status.
POLL_MS = 2000
# Points of a plot, and operations that a consumer has behind it: more of both for the picture.
POINTS = 91 if WRITES else 3  # the first one, which shows the preparation, leaves the plot
BEHIND = 60_000 if WRITES else 1_000

CONSUMERS = [
    ("search", "10.0.3.17", {"types": "video,comment"}),
    ("thumbs", "10.0.3.21", {"types": "video"}),
    ("", "10.0.4.80", {}),
    ("ada", "10.0.3.40", {"parents": "user/ada"}),
]


def batches(count: int) -> Iterator[list[dict[str, object]]]:
    """Yield the operations of each poll, with times that end now."""
    choose, level = random.Random(1), 70.0
    source, time = operations(seed=2), datetime.now(UTC) - timedelta(milliseconds=count * POLL_MS)
    for _ in range(count):
        level = min(150.0, max(20.0, level + choose.gauss(0, 14)))
        batch = list(islice(source, round(level)))
        for operation in batch:
            time += timedelta(milliseconds=POLL_MS / len(batch))
            operation["timestamp"] = time.isoformat()
        yield batch


def follow(agent: Agent, path: str, name: str, address: str, **query: str) -> RawStream:
    pairs = {**query, **({"name": name} if name else {})}
    parameters = "&".join(f"{key}={value}" for key, value in pairs.items())
    headers = {"Accept": "text/event-stream", "X-Forwarded-For": f"{address}:40{len(name) + 100}"}
    return RawStream(Target.of(agent), f"{path}?{parameters}", headers)


async def fill(agent: Agent, page: Page) -> None:
    """Let the page poll /status with its clock, and send operations in between."""
    for batch in batches(POINTS):
        assert agent.post(batch) == 200
        async with page.expect_response("**/status"):
            await page.clock.run_for(POLL_MS)
    await page.clock.run_for(POLL_MS // 4)  # for the last rows


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_a_busy_agent_fits_on_the_dashboard(
    agent: Agent, browser: Browser, tmp_path: Path, theme: Literal["light", "dark"]
) -> None:
    with ExitStack() as stack:
        source = operations(seed=1)
        assert agent.post(next(source)) == 204
        oldest = agent.status()["store"]["newest_id"]
        for _ in range(0, BEHIND, 5_000):
            assert agent.post(list(islice(source, min(BEHIND, 5_000)))) == 200
        orders = Topic(agent, "shop/orders").create()
        for name, address, query in CONSUMERS:
            stack.enter_context(follow(agent, "/ops", name, address, **query))
        uncommitted = {"isolation": "read_uncommitted"}
        stream = f"{orders.path}/stream"
        stack.enter_context(follow(agent, stream, "billing", "10.0.5.12"))
        stack.enter_context(follow(agent, stream, "audit", "10.0.5.13", **uncommitted))
        under = {"transactionWritePointer": 7, "messages": [f"order {n}" for n in range(14)]}
        assert agent.request("POST", f"{orders.path}/publish", under).status == 200
        headers = {
            "Accept": "text/event-stream",
            "Last-Event-ID": oldest,
            "X-Forwarded-For": "10.0.9.2:40111",
        }
        # This consumer reads nothing.
        slow = RawStream(Target.of(agent), "/ops?name=archive", headers, receive_buffer=4096)
        stack.enter_context(slow)
        async with Visit(browser, color_scheme=theme) as visit:
            await visit.page.clock.install()
            page = await visit.open(f"{agent.url}/")
            await expect(page.locator("#link")).to_have_text("Live")
            await fill(agent, page)
            await expect(page.locator("#consumer-rows tr")).to_have_count(8)
            await expect(page.locator("#rows tr").first).to_be_visible()
            held = page.locator("#consumer-rows tr").filter(has_text="topic shop/orders")
            await expect(held.filter(has_text="held by pointer 7")).to_have_count(1)
            width = "document.documentElement.scrollWidth <= innerWidth"
            assert await page.evaluate(width)
            picture = await page.screenshot(path=tmp_path / f"{theme}.png")
            visit.check()
    if WRITES:
        PICTURES[theme].write_bytes(picture)
