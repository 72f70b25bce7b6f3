"""The description of the API: its policy lets it show and send requests, and nothing else."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.visit import Visit
from tests.kits.agents.agent import Agent

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def described(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Page, Visit]]:
    """Yield the description, for all tests: to show it takes the browser 4 s of CPU time."""
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        async with Visit(browser) as visit:
            yield await visit.open(f"{agent.url}/docs"), visit


async def test_the_description_of_the_api_works_under_its_policy(
    described: tuple[Page, Visit],
) -> None:
    page, visit = described
    live = page.locator(".opblock").filter(has_text="/live")
    await live.locator(".opblock-summary-control").click()
    await live.get_by_role("button", name="Try it out").click()
    await live.get_by_role("button", name="Execute").click()
    await expect(live.locator(".live-responses-table .response-col_status").nth(1)).to_contain_text(
        "200"
    )
    visit.check()


async def test_the_description_of_the_api_follows_the_theme_of_the_browser(
    described: tuple[Page, Visit],
) -> None:
    page, visit = described
    for theme in ("dark", "light"):
        await page.emulate_media(color_scheme=theme)
        await expect(page.locator("html.dark-mode")).to_have_count(int(theme == "dark"))
    visit.check()


async def test_the_description_of_the_api_takes_passwords(described: tuple[Page, Visit]) -> None:
    page, visit = described
    await page.locator(".auth-wrapper .btn.authorize").click()
    kinds = page.locator(".modal-ux .auth-container h4")
    await expect(kinds).to_have_count(5)
    for each in ("ingest-password", "password", "bearer", "token", "session"):
        await expect(kinds.filter(has=page.locator(f"code:text-is('{each}')"))).to_have_count(1)
    await page.locator(".modal-ux .close-modal").click()
    visit.check()
