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
