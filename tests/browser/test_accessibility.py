"""Accessibility by axe-core: every view of the dashboard, in both themes and at both sizes."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.visit import SIZES, Visit
from tests.kits.agents.agent import Agent
from tests.kits.paths import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="session")

AXE = ROOT / ".cache/axe-core/node_modules/axe-core/axe.min.js"
PASSWORD = "secret"

_RUN = """async (options) => (await axe.run(document, options)).violations.map(
    ({id, help, nodes}) => `${id}: ${help}: ${nodes.map(
        ({html, any}) => html + " " + any.map((one) => one.message)).join(" | ")}`
)"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent"), "--password", PASSWORD) as agent:
        yield agent


@cache
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("axe-core is missing: make test installs it")
    return AXE.read_text(encoding="utf-8")


# The theme changes colours, and the button for the theme.
_OF_THEMES = {"runOnly": ["color-contrast", "button-name"]}


async def violations(page: Page) -> list[str]:
    """Judge the view by all rules in the light theme, and by those of themes in the dark one."""
    # Rows that fade in have no final contrast yet. A row that leaves cancels its animation.
    await page.evaluate(
        "Promise.allSettled(document.getAnimations().map((animation) => animation.finished))"
    )
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(axe())
    found: list[str] = []
    for theme, options in (("light", {}), ("dark", _OF_THEMES)):
        await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        found += [f"{theme}: {line}" for line in await page.evaluate(_RUN, options)]
    return found


async def test_axe_finds_errors_in_a_bad_page(agent: Agent, visit: Visit) -> None:
    page = await visit.open(f"{agent.url}/")
    await page.evaluate("document.querySelector('#copy-all').textContent = ''")
    await page.evaluate(
        "document.querySelector('#operations-title').style.color = 'light-dark(#eee, #333)'"
    )
    found = {tuple(line.split(": ")[:2]) for line in await violations(page)}
    assert found == {
        ("light", "button-name"), ("light", "color-contrast"),
        ("dark", "button-name"), ("dark", "color-contrast"),
    }  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
async def test_axe_finds_nothing_in_any_view_in_either_theme(
    browser: Browser, guarded: Agent, size: str
) -> None:
    async with Visit(browser, viewport=SIZES[size]) as visit:
        page = await visit.open(f"{guarded.url}/")
        await expect(page.locator("#link")).to_have_text("Signed out")
        assert await violations(page) == []

        await page.get_by_label("Password", exact=True).fill("guess")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("The password is wrong.")
        assert await violations(page) == []
        visit.forgive(r"\b401\b")

        await page.get_by_label("Password", exact=True).fill(PASSWORD)
        await page.keyboard.press("Enter")
        await expect(page.locator("#link")).to_have_text("Live")
        for event in ("insert", "update", "delete"):
            guarded.send_udp(
                {"event": event, "type": "video", "id": event, "parents": ["user/ada", "user/ken"]}
            )
        guarded.send_udp(b"{")
        await expect(page.locator("#rows tr")).to_have_count(3)
        await page.get_by_role("button", name="Replicate").click()
        await expect(page.locator("#copy-text")).to_contain_text("complete")
        await page.get_by_label("Types").fill("video")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Replicate").click()
        await expect(page.locator("#copy-text")).to_contain_text("complete")
        await expect(page.locator("#consumer-rows tr")).not_to_have_count(0)
        assert await violations(page) == []

        answer: dict[str, Any] = guarded.status()
        answer |= {
            "status": "DEGRADED",
            "reason": "store oplog.db: the disk is full",
            "queue_size": 95_000,
        }
        answer["store"] = {"kind": "sqlite", "warnings": ["the log is small"]}
        await page.route("**/status", lambda route: route.fulfill(json=answer))
        await expect(page.locator("#notice p")).to_have_count(2)
        assert await violations(page) == []
        visit.check()
