"""The site that `make docs` builds: its pages, its navigation, and how it looks in Chromium."""

import mimetypes
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

import scripts.docs
from tests.browser.visit import Visit
from tests.browser.website import Website
from tests.kits.documents import pages

SCHEMES = {"light": "default", "dark": "slate"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical", reason="zensical is missing: install the group `release`")
    build = tmp_path_factory.mktemp("build")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts.docs, "BUILD", build)
        patch.setattr(scripts.docs, "PAGES", build / "pages")
        patch.setattr(scripts.docs, "SITE", build / "site")
        scripts.docs.collect()
        scripts.docs.build()
        scripts.docs.check()
    return build / "site"


def test_the_pages_are_those_of_the_checkout(site: Path) -> None:
    # Every code block is one, also with words for the tests behind its language.
    quickstart = (site / "docs/start/quickstart.html").read_text()
    assert quickstart.count("<pre") == pages.QUICKSTART.read_text().count("\n```") / 2
    assert '"filename">consumer.py<' in quickstart
    # A page outside docs/ that a page links to is part of the site.
    assert (site / "CHANGELOG.html").is_file()
    assert 'href="../../CHANGELOG.html"' in (site / "docs/operate/upgrading.html").read_text()
    # Snippets begin and end as in the checkout, and lists with snippets are not cut.
    assert [page for page in site.rglob("*.html") if "```" in page.read_text()] == []
    assert "<p>Build the packages:</p>" in (site / "docs/internals/releasing.html").read_text()
    # A bar in a row of a table is no end of a cell, and has no backslash before it.
    flags = (site / "docs/reference/flags.html").read_text()
    assert "<code>--udp-listen ADDRESS|off</code>" in flags


def test_home_is_the_readme_and_the_groups_stand_in_the_order_of_the_map(site: Path) -> None:
    home = (site / "index.html").read_text()
    assert re.search(r'<h1 id="oplog">', home)
    tabs = home.partition('class="md-tabs__list"')[2].partition("</ul>")[0]
    titles = re.findall(r'class="md-tabs__link">\s*(\S+)\s*</a>', tabs)
    assert titles == ["Home", *(group.title for group in scripts.docs.navigation())]


def serve(site: Path, website: Website) -> None:
    for path in site.rglob("*"):
        if path.is_file():
            kind = mimetypes.guess_type(path)[0] or "text/plain"
            website.pages[f"/{path.relative_to(site).as_posix()}"] = (kind, path.read_bytes())


@pytest.mark.asyncio(loop_scope="session")
async def test_the_site_follows_the_system_lets_choose_and_finds_words_without_a_network(
    site: Path, website: Website, browser: Browser
) -> None:
    serve(site, website)
    for theme in SCHEMES:
        async with Visit(browser, color_scheme=theme) as visit:
            page = await visit.open(f"{website.url}/index.html")
            body = page.locator("body")
            await expect(body).to_have_attribute("data-md-color-scheme", SCHEMES[theme])
            picture = page.locator("article img:visible")
            await expect(picture).to_have_count(1)
            name = "dashboard-dark.png" if theme == "dark" else "dashboard.png"
            await expect(picture).to_have_attribute("src", re.compile(f"{name}#only-{theme}$"))
            for title, chosen in (("light", "light"), ("dark", "dark"), ("of the system", theme)):
                await page.locator(f'label[title*="{title}"]:visible').click()
                await expect(body).to_have_attribute("data-md-color-scheme", SCHEMES[chosen])
            if theme == "dark":  # the search is the same in both
                await page.keyboard.press("Control+k")
                await page.keyboard.type("outbox")
                await expect(page.get_by_role("option").first).to_contain_text("outbox")
            visit.check()
