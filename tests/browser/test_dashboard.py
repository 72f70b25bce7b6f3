"""The dashboard in a browser, against real agents."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.visit import Visit
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.clients.restart import agent_on
from tests.kits.contract.passwords import SESAME, basic
from tests.kits.servers.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")

PASSWORD = "gehéim"
# Errors in the console while an agent stops and is unreachable.
REFUSED = (
    r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET"
    r"|ERR_EMPTY_RESPONSE|\b503\b"
)


def operation(event: str, id_: str, type_: str = "video", *parents: str) -> dict[str, Any]:
    return {"event": event, "type": type_, "id": id_, "parents": list(parents)}


async def ids(page: Page) -> list[str]:
    return await page.locator("#rows td:nth-child(4)").all_text_contents()


async def expect_ids(page: Page, *newest_first: str) -> None:
    await expect(page.locator("#rows td:nth-child(4)")).to_have_text(list(newest_first))


async def expect_link(page: Page, words: str) -> None:
    await expect(page.locator("#link")).to_have_text(words)


async def test_operations_appear_as_they_come_with_the_newest_first(
    agent: Agent, visit: Visit
) -> None:
    page = await visit.open(f"{agent.url}/")
    await expect_link(page, "Live")
    await expect(page.get_by_text("Waiting for the next operation.")).to_be_visible()
    agent.post(operation("insert", "a", "video", "user/ada", "user/ken"))
    agent.send_udp(operation("delete", "<b>b", "comment"))
    await expect_ids(page, "<b>b", "a")
    cells = page.locator("#rows tr").nth(1).locator("td")
    assert (await cells.all_text_contents())[1:4] == ["insert", "video", "a"]
    assert await cells.nth(4).locator(".parent").all_text_contents() == ["user/ada", "user/ken"]
    await expect(page.get_by_text("Waiting for the next operation.")).to_be_hidden()
    await expect(page.locator("[data-plot=ingested] > .dim")).to_have_text("2 in total")
    await expect(page.locator("[data-gauge=objects] b")).to_have_text("1")
    await expect(page.locator("[data-gauge=objects] .dim")).to_have_text("1 deleted")


async def test_a_filter_works_and_survives_a_reload_and_going_back(
    agent: Agent, visit: Visit
) -> None:
    page = await visit.open(f"{agent.url}/")
    await expect_link(page, "Live")
    await page.get_by_label("Types").fill(" Video , user")
    await page.get_by_label("Parents").fill("user/ada")
    await page.get_by_role("button", name="Filter").click()
    await expect(page).to_have_url(f"{agent.url}/?types=Video%2Cuser&parents=user%2Fada")
    for round_ in ("1", "2"):
        await expect_link(page, "Live")
        agent.wait_status(clients=1)
        agent.post(
            [
                operation("insert", f"a{round_}", "video", "user/ada"),
                operation("insert", f"b{round_}", "video", "user/ken"),
                operation("insert", f"c{round_}", "comment", "user/ada"),
                operation("insert", f"d{round_}", "user", "user/ken", "user/ada"),
            ]
        )
        await expect_ids(page, f"d{round_}", f"a{round_}")
        if round_ == "1":
            await page.reload()
            await expect(page.get_by_label("Types")).to_have_value("Video,user")
            await expect(page.get_by_label("Parents")).to_have_value("user/ada")
    await page.get_by_role("button", name="Clear").click()
    await expect(page).to_have_url(f"{agent.url}/")
    await page.go_back()
    await expect(page.get_by_label("Parents")).to_have_value("user/ada")


async def test_a_click_on_a_type_or_parent_makes_it_the_filter(agent: Agent, visit: Visit) -> None:
    page = await visit.open(f"{agent.url}/")
    await expect_link(page, "Live")
    agent.post(operation("insert", "a", "video", "user/a,b"))
    await page.locator("#rows .parent").click()
    await expect(page).to_have_url(f"{agent.url}/?parents=user%2Fa%2Cb&parents=user%2Fa%2Cb")
    await expect_link(page, "Live")
    agent.wait_status(clients=1)
    agent.post(
        [
            operation("insert", "b", "video", "user/a"),
            operation("insert", "c", "comment", "user/a,b"),
        ]
    )
    await expect_ids(page, "c")
    await page.locator("#rows td:nth-child(3)").click()
    await expect(page).to_have_url(
        f"{agent.url}/?parents=user%2Fa%2Cb&parents=user%2Fa%2Cb&types=comment"
    )


async def test_the_page_resumes_after_a_restart_without_a_gap(visit: Visit, tmp_path: Path) -> None:
    port = free_port()
    with agent_on(port, tmp_path) as agent:
        page = await visit.open(f"{agent.url}/")
        await expect_link(page, "Live")
        agent.post(operation("insert", "before"))
        await expect_ids(page, "before")
        assert agent.stop() == 0
    with Agent(tmp_path) as elsewhere:  # stored before the page can reconnect
        elsewhere.post([operation("insert", "while"), operation("insert", "away")])
    await expect_link(page, "Reconnecting")
    await expect(page.locator("#notice")).to_contain_text("The agent does not answer.")
    with agent_on(port, tmp_path) as agent:
        await expect_link(page, "Live")
        agent.post(operation("insert", "after"))
        await expect_ids(page, "after", "away", "while", "before")
        await expect(page.locator("#notice p")).to_have_count(0)
        await visit.leave()
    assert visit.forgive(REFUSED) > 0


async def test_a_refused_stream_is_retried_at_its_position(visit: Visit, tmp_path: Path) -> None:
    """A browser gives up after an error answer, so the page must reconnect by itself."""
    with Agent(tmp_path, "--max-clients", "1") as agent:
        agent.post(operation("insert", "old"))
        with agent.follow():
            page = await visit.open(f"{agent.url}/")
            await expect_link(page, "Reconnecting")
            agent.post(operation("insert", "missed"))
        await expect_link(page, "Live")
        agent.post(operation("insert", "new"))
        await expect_ids(page, "new", "missed")
        await visit.leave()
    assert visit.forgive("503") > 0


async def test_a_wrong_password_is_refused_and_the_right_one_works_until_the_sign_out(
    visit: Visit, tmp_path: Path
) -> None:
    with Agent(tmp_path, "--password", PASSWORD) as agent:
        page = await visit.open(f"{agent.url}/")
        await expect_link(page, "Signed out")
        await expect(page.locator("#consumers-note")).to_have_text("Sign in to see the consumers.")
        await expect(page.get_by_label("Password", exact=True)).to_be_focused()
        await page.keyboard.type("guess")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("The password is wrong.")
        assert agent.status()["connections"] == 0
        assert visit.forgive(r"\b401\b") == 1

        await page.get_by_label("Password", exact=True).fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        await expect_link(page, "Live")
        agent.send_udp(operation("insert", "a"))
        await expect_ids(page, "a")
        await expect(page.locator("#consumer-rows tr")).to_have_count(1)
        await page.reload()
        await expect_link(page, "Live")
        assert PASSWORD not in str(
            await page.evaluate("[document.cookie, {...localStorage}, location.href]")
        )

        await page.get_by_role("button", name="Sign out").click()
        await expect_link(page, "Signed out")
        agent.wait_status(clients=0)
        await expect(page.get_by_label("Password", exact=True)).to_have_value("")
        await page.reload()
        await expect_link(page, "Signed out")
        await expect(page.locator("#consumer-rows tr")).to_have_count(0)
        await visit.leave()


async def test_a_principal_signs_in_with_its_name_and_sees_its_own_operations(
    visit: Visit, tmp_path: Path
) -> None:
    (tmp_path / "rights.toml").write_text(
        f'[ada]\npassword_hash = "{SESAME}"\nread = ["system/oplog"]\nparents = ["user/ada"]\n'
        f'[bob]\npassword_hash = "{SESAME}"\nread = ["shop/*"]\n'
        f'[writer]\npassword_hash = "{SESAME}"\nwrite = ["system/oplog"]\n'
    )
    with Agent(tmp_path, "--rights", str(tmp_path / "rights.toml")) as agent:
        page = await visit.open(f"{agent.url}/")
        await expect_link(page, "Signed out")
        await page.get_by_label("Name of a principal").fill("ada")
        await page.get_by_label("Password", exact=True).fill("sesame")
        await page.get_by_role("button", name="Sign in").click()
        await expect_link(page, "Live")
        for id_, parent in (("other", "user/bob"), ("mine", "user/ada")):
            made = operation("insert", id_, "video", parent)
            assert agent.post(made, basic("sesame", "writer")) == 204
        await expect_ids(page, "mine")
        text = await page.content()
        assert "user/bob" not in text
        assert "127.0.0.1" not in await page.inner_text("#consumer-rows")
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_label("Name of a principal").fill("bob")
        await page.get_by_label("Password", exact=True).fill("sesame")
        await page.get_by_role("button", name="Sign in").click()
        await expect_link(page, "No right to read operations")
        await visit.leave()


async def test_an_expired_session_asks_for_the_password_again(visit: Visit, tmp_path: Path) -> None:
    port = free_port()
    with agent_on(port, tmp_path, "--password", PASSWORD) as agent:
        page = await visit.open(f"{agent.url}/")
        await page.get_by_label("Password", exact=True).fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        await expect_link(page, "Live")
        assert agent.stop() == 0
    with agent_on(port, tmp_path, "--password", "another"):
        await expect_link(page, "Signed out")
        await expect(page.get_by_role("alert")).to_have_text("The session has expired.")
        await visit.leave()
    visit.forgive(REFUSED)
    assert visit.forgive(r"\b401\b") == 1


async def test_a_replication_is_shown_from_reset_to_live(agent: Agent, visit: Visit) -> None:
    agent.post(
        [operation("insert", str(number)) for number in range(1500)] + [operation("delete", "7")]
    )
    page = await visit.open(f"{agent.url}/")
    await expect_link(page, "Live")
    await page.get_by_role("button", name="Replicate").click()
    await expect(page.locator("#copy-text")).to_contain_text("completed in")
    await expect(page.locator("#copy li")).to_have_text(["reset", "1,499 objects", "live"])
    await expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
    await expect_link(page, "Live")
    await expect(page.locator("#rows tr")).to_have_count(200)
    await expect(page.locator("#rows tr").first).to_have_text("live: the copy is complete")
    agent.post(operation("insert", "next"))
    await expect(page.locator("#rows tr").first).to_contain_text("next")


async def test_a_fast_log_neither_freezes_the_page_nor_fills_it(agent: Agent, visit: Visit) -> None:
    page = await visit.open(f"{agent.url}/")
    await expect_link(page, "Live")
    for first in range(0, 20_000, 1000):
        agent.post([operation("update", str(number)) for number in range(first, first + 1000)])
    await expect(page.locator("#rows td:nth-child(4)").first).to_have_text("19999")
    assert await ids(page) == [str(number) for number in range(19_999, 19_799, -1)]


async def test_pause_keeps_the_rows_and_counts_new_operations(agent: Agent, visit: Visit) -> None:
    page = await visit.open(f"{agent.url}/")
    await expect_link(page, "Live")
    agent.post(operation("insert", "a"))
    await expect_ids(page, "a")
    await page.get_by_role("button", name="Pause").click()
    agent.post([operation("insert", f"b{number}") for number in range(900)])
    await expect(page.get_by_role("button", name="Resume")).to_have_text("Resume (900 new)")
    assert await ids(page) == ["a"]
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#rows td:nth-child(4)").first).to_have_text("b899")
    assert await ids(page) == [f"b{number}" for number in range(899, 699, -1)]
    await expect(page.get_by_role("button", name="Pause")).to_have_text("Pause")


async def test_the_consumers_are_listed_with_filter_position_and_lag(
    agent: Agent, visit: Visit
) -> None:
    agent.post(operation("insert", "a"))
    newest = agent.status()["store"]["newest_id"]
    with agent.follow(types="video,user", parents="user/ada", name="search"):
        page = await visit.open(f"{agent.url}/")
        rows = page.locator("#consumer-rows tr")
        await expect(rows).to_have_count(2)
        consumer = rows.filter(has_text="user, video, user/ada")
        await expect(consumer.locator("td").nth(0)).to_contain_text("search (127.0.0.1:")
        await expect(consumer.locator("td").nth(1)).to_have_text(re.compile(f"^{newest}.*0 sent$"))
        await expect(consumer.locator("td").nth(2)).to_have_text(re.compile("^0.*all sent$"))
        await expect(rows.filter(has_text="all operations")).to_have_count(1)  # the page itself
        await expect(page.locator("#consumers-count")).to_have_text(
            "2, by lag: what is not yet sent to them"
        )
        await expect(page.locator("[data-plot=clients] .big span")).to_have_text("2")


async def test_followers_of_topics_are_shown_with_their_topic_and_what_holds_them(
    agent: Agent, visit: Visit
) -> None:
    orders, bills = (Topic(agent, f"shop/{name}").create() for name in ("orders", "bills"))
    with orders.stream(isolation="read_committed"), bills.stream():
        bills.publish("bill")
        under = {"transactionWritePointer": 7, "messages": ["order"]}
        assert agent.request("POST", f"{orders.path}/publish", under).status == 200
        page = await visit.open(f"{agent.url}/")
        rows = page.locator("#consumer-rows tr")
        held, free = rows.filter(has_text="topic shop/orders"), rows.filter(has_text="shop/bills")
        await expect(held.locator("td").nth(1)).to_contain_text("held by pointer 7, 0 sent")
        await expect(held.locator("td").nth(2)).to_have_text("1held")
        await expect(free.locator("td").nth(2)).to_have_text("0all sent")


async def test_an_outage_of_the_store_and_its_end_are_shown(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "oplog.db"
    with Agent(tmp_path) as agent:
        page = await visit.open(f"{agent.url}/")
        await expect_link(page, "Live")
        files = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]
        for file in files:
            file.rename(file.with_name(f"aside-{file.name}"))
        agent.send_udp(operation("insert", "waits"))
        await expect(page.locator("#notice")).to_contain_text("the file is gone")
        await expect(page.locator("#empty")).to_have_text(
            "No operation comes while the agent is degraded."
        )
        await expect(page).to_have_title("Degraded: oplog")
        for file in files:
            file.with_name(f"aside-{file.name}").rename(file)
        await expect_ids(page, "waits")
        await expect(page.locator("#notice p")).to_have_count(0)
        await expect(page).to_have_title("oplog")
        await visit.leave()
    assert visit.forgive("503") > 0


async def test_everything_can_be_done_with_the_keyboard(agent: Agent, visit: Visit) -> None:
    page = await visit.open(f"{agent.url}/")
    await expect_link(page, "Live")
    await page.keyboard.press("Tab")
    await expect(page.get_by_text("Skip to the operations")).to_be_focused()
    await page.keyboard.press("Enter")
    for name in ("Types", "Parents"):
        await page.keyboard.press("Tab")
        await expect(page.get_by_label(name)).to_be_focused()
        await page.keyboard.type({"Types": "video", "Parents": "user/ada"}[name])
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{agent.url}/?types=video&parents=user%2Fada")
    await expect_link(page, "Live")
    for name in ("Filter", "Clear", "Replicate", "Pause"):
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button", name=name)).to_be_focused()
    await page.keyboard.press("Space")
    agent.wait_status(clients=1)
    agent.post(operation("insert", "a", "video", "user/ada"))
    await expect(page.get_by_role("button", name="Resume")).to_have_text("Resume (1 new)")
    await expect(page.get_by_role("button", name="Resume")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect_ids(page, "a")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("region", name="List of operations")).to_be_focused()


async def test_the_theme_follows_the_system_until_one_is_chosen(agent: Agent, visit: Visit) -> None:
    page = await visit.open(f"{agent.url}/")
    ground = "getComputedStyle(document.body).backgroundColor"
    await page.emulate_media(color_scheme="light")
    light = await page.evaluate(ground)
    await page.emulate_media(color_scheme="dark")
    dark = await page.evaluate(ground)
    assert light != dark
    await page.get_by_role("button", name="Use the light theme").click()
    assert await page.evaluate(ground) == light
    await page.reload()
    assert await page.evaluate(ground) == light
    await page.get_by_role("button", name="Use the dark theme").click()
    assert await page.evaluate(ground) == dark
