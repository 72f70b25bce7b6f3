"""One headless Chromium per session. Each test has its own browser context: cookies and storage."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.browser.visit import ARGUMENTS, Visit
from tests.browser.website import Website
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.web.chromium import chromium

expect.set_options(timeout=DEADLINE * 1000)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    async with Visit(browser) as visit:
        yield visit
        visit.check()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with Agent(tmp_path) as agent:
        yield agent


@pytest.fixture
def website() -> Iterator[Website]:
    """Yield a server whose origin differs from every agent's."""
    with Website() as website:
        yield website
