"""The description of the API: its policy lets it show and send requests, and nothing else."""

import pytest
from playwright.async_api import expect

from tests.browser.visit import Visit
from tests.kits.agents.agent import Agent

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_description_of_the_api_works_under_its_policy(
    agent: Agent, visit: Visit
) -> None:
    page = await visit.open(f"{agent.url}/docs")
    live = page.locator(".opblock").filter(has_text="/live")
    await live.locator(".opblock-summary-control").click()
    await live.get_by_role("button", name="Try it out").click()
    await live.get_by_role("button", name="Execute").click()
    await expect(live.locator(".live-responses-table .response-col_status").nth(1)).to_contain_text(
        "200"
    )


async def test_the_description_of_the_api_follows_the_theme_of_the_browser(
    agent: Agent, visit: Visit
) -> None:
    page = await visit.open(f"{agent.url}/docs")
    for theme in ("dark", "light"):
        await page.emulate_media(color_scheme=theme)
        await expect(page.locator("html.dark-mode")).to_have_count(int(theme == "dark"))


async def test_the_description_of_the_api_takes_passwords(agent: Agent, visit: Visit) -> None:
    page = await visit.open(f"{agent.url}/docs")
    await page.locator(".auth-wrapper .btn.authorize").click()
    kinds = page.locator(".modal-ux .auth-container h4")
    await expect(kinds).to_have_count(4)
    for each in ("ingest-password", "password", "token", "session"):
        await expect(kinds.filter(has=page.locator(f"code:text-is('{each}')"))).to_have_count(1)
