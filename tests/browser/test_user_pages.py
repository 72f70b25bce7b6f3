"""docs/howto/user-pages.md: a reader pastes it, and two users open their pages side by side."""

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, Route, expect

from tests.browser.test_accessibility import violations
from tests.browser.visit import Visit
from tests.kits.agents.agent import Agent
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.documents import pages, walk
from tests.kits.documents.snippets import Snippet, snippets
from tests.kits.documents.staying import Staying
from tests.kits.servers.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOWTO = pages.HOWTO / "user-pages.md"
PASSWORDS = {"ada": "lovelace", "ken": "thompson"}
LIFE = 300
# A picture, and an installation, which tests/deploy tries.
ELSEWHERE = ("application ──", "pip install")


class Walk(walk.Walk):
    """A reader of the page. The application and its agent have a clock that the test moves."""

    commands = {"python": "", "uvicorn": "-m uvicorn"}  # noqa: RUF012
    looks = may_fail = re.compile("(?!)")

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        super().__init__(folder, addresses)
        self.clock = MovedClock(folder)
        self._ahead = folder / "ahead"
        self._ahead.write_text("0")
        self.agent: Agent
        self.consumer: Staying

    def move(self, seconds: float) -> None:
        """Let time pass, in the application first: its tokens must be valid at the agent."""
        self._ahead.write_text(str(float(self._ahead.read_text()) + seconds))
        self.clock.move(seconds)

    def paste(self, snippet: Snippet) -> None:
        if snippet.first.startswith(ELSEWHERE):
            return
        code = self.here(snippet.code)
        match snippet.language, snippet.word:
            case "sh", "stays":
                self._begin(code.strip())
            case "sh", "":
                self.run(code)
            case "text", "stays":
                self.consumer.expect(code)
            case _, name:
                assert name, f"no rule to run {snippet.language!r}"
                moved = "(time.time() + float(Path('ahead').read_text()))"
                (self.folder / name).write_text(code.replace("time.time()", moved))

    def _begin(self, code: str) -> None:
        program, *arguments = shlex.split(code)
        if program == "oplogd":
            address = self.addresses["localhost:8042"]
            self.agent = MovedAgent(
                self.folder, "--listen", address, "--debug", *arguments,
                environ=self.clock.environ, cwd=self.folder,
            )  # fmt: skip
            self.stack.callback(self.agent.kill)
        elif program == "curl":
            self.consumer = Staying(f"exec {code}", self.folder, self.environ)
            self.stack.callback(self.consumer.close)
        else:
            self.stay(code)


class Shown:
    """The page of a user, with all requests of its browser."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.page: Page = visit.page
        self.requests: list[Request] = []
        self.page.on("request", self._note)

    def _note(self, request: Request) -> None:
        self.requests.append(request)

    async def has(self, *notes: str) -> None:
        await expect(self.page.locator("li")).to_have_text(list(notes))

    async def is_in_state(self, text: str) -> None:
        await expect(self.page.get_by_role("status")).to_have_text(text)

    @property
    def tokens(self) -> list[str]:
        """The tokens of its streams."""
        queries = [parse_qs(urlsplit(each.url).query) for each in self.requests]
        return [token for query in queries for token in query.get("token", [])]


class House(NamedTuple):
    """``rest``: the snippets that are not pasted yet."""

    walk: Walk
    ada: Shown
    ken: Shown
    rest: list[Snippet]

    def send(self, event: str, note: str, *owners: str) -> None:
        """Send an operation, as the application would."""
        right = {"write": ["system/oplog"]}
        key = (self.walk.folder / "token.key").read_text().strip()
        claims = {"exp": time.time() + 2 * LIFE, "oplog": right}
        headers = {"Authorization": f"Bearer {jwt.encode(claims, key, 'HS256')}"}
        parents = [f"user/{owner}" for owner in owners]
        body = {"event": event, "type": "note", "id": note, "parents": parents}
        assert self.walk.agent.post(body, headers) == 204

    def save(self, user: str, note: str, text: str) -> None:
        assert self.answers(user, "PUT", f"/notes/{note}", text) == 204

    def delete(self, user: str, note: str) -> None:
        assert self.answers(user, "DELETE", f"/notes/{note}") == 204

    def answers(
        self, user: str | None, method: str, path: str, body: Any = None, password: str = ""
    ) -> int:
        """Send a request to the application, and return the status of its answer."""
        url = self.walk.here(f"http://localhost:8000{path}")
        auth = None if user is None else (user, password or PASSWORDS.get(user, ""))
        return httpx.request(method, url, auth=auth, json=body).status_code


@pytest_asyncio.fixture(loop_scope="session")
async def house(browser: Browser, tmp_path: Path) -> AsyncIterator[House]:
    """Paste the page until the application runs, and open the pages of both users."""
    agent = f"127.0.0.1:{free_port()}"
    async with AsyncExitStack() as stack:
        walk = stack.enter_context(Walk(tmp_path, {"localhost:8042": agent}))
        rest = snippets(HOWTO)
        while not walk.staying:
            walk.paste(rest.pop(0))
        shown: list[Shown] = []
        for user, password in PASSWORDS.items():
            signed_in = {"username": user, "password": password}
            visit = await stack.enter_async_context(Visit(browser, http_credentials=signed_in))
            visit.hosts.add(agent)
            shown.append(Shown(visit))
            await visit.open(walk.here("http://localhost:8000/"))
            await shown[-1].is_in_state("live")
        ada, ken = shown
        yield House(walk, ada, ken, rest)
        for each in shown:
            await each.visit.leave()
            each.visit.check()


async def test_a_reader_who_pastes_everything_sees_each_user_only_the_own_notes(
    house: House,
) -> None:
    def paste(*, until: str) -> None:
        """Paste up to and with the snippet that begins so."""
        is_last = False
        while not is_last:
            is_last = house.rest[0].first.startswith(until)
            house.walk.paste(house.rest.pop(0))

    paste(until="save()")
    await house.ada.has("Write a program", "Buy a loom")
    await house.ken.has("Buy a teletype")
    assert await violations(house.ada.page) == []
    paste(until="curl -sS -f -u ada:lovelace -X PUT")
    await house.ada.has("Write a better program")
    paste(until="id: 691eea2c")
    await house.ken.has("Buy a teletype")
    for shown in (house.ada, house.ken):
        await shown.visit.leave()
    assert house.walk.agent.stop() == 0
    paste(until='curl -sS -f -u "ada:')
    assert house.rest == []
    given = json.loads(house.walk.printed)
    assert list(given) == ["token", "expires", "seconds", "right"]
    assert given["right"] == {"read": ["system/oplog"], "parents": ["user/ada"]}
    with house.walk.agent.follow("0", token=given["token"]) as stream:
        assert [each.event for each in stream.until("live")] == ["reset", "insert", "live"]


async def test_pages_return_with_new_tokens_and_lose_nothing(house: House) -> None:
    house.save("ada", "kept", "a")
    house.save("ada", "deleted", "b")
    house.save("ken", "kens", "c")
    await house.ada.has("a", "b")
    await house.ken.has("c")
    may_return = asyncio.Event()

    async def hold(route: Route) -> None:
        await may_return.wait()
        await route.continue_()

    for shown in (house.ada, house.ken):
        await shown.page.route("**/oplog-token", hold)
        await shown.page.locator("li").evaluate_all("(all) => all.map((li) => (li.mark = 1))")
    for ended in range(3):
        may_return.clear()
        house.walk.move(LIFE)
        for shown in (house.ada, house.ken):
            await shown.is_in_state("connecting")
        house.save("ada", "kept", f"a{ended}")
        house.save("ada", f"new{ended}", f"n{ended}")
        house.save("ken", f"new-of-ken{ended}", f"k{ended}")
        may_return.set()
        await house.ada.is_in_state("connected")
        await house.ken.is_in_state("connected")
    house.delete("ada", "deleted")
    await house.ada.has("a2", "n0", "n1", "n2")
    await house.ken.has("c", "k0", "k1", "k2")
    marks = "(all) => all.map((li) => li.mark ?? 0)"
    assert await house.ada.page.locator("li").evaluate_all(marks) == [1, 0, 0, 0], "no reset"
    assert await house.ken.page.locator("li").evaluate_all(marks) == [1, 0, 0, 0], "no reset"
    for shown in (house.ada, house.ken):
        assert len({*shown.tokens}) == len(shown.tokens) == 4
        referers = {(await each.all_headers()).get("referer") for each in shown.requests}
        assert referers == {None, house.walk.here("http://localhost:8000/")}
        log = house.walk.agent.text() + house.walk.errors
        assert [each for each in shown.tokens if each in log] == []


async def test_operations_without_the_parent_of_a_user_do_not_reach_its_page(house: House) -> None:
    for note in ("gone", "given", "moved", "shared"):
        house.save("ada", note, note)
    await house.ada.has("gone", "given", "moved", "shared")
    house.send("delete", "gone")
    house.send("update", "given", "ken")
    house.send("delete", "moved", "ada")
    house.send("insert", "moved", "ken")
    house.send("delete", "shared", "ken", "ada")
    await house.ada.has("gone", "given")
    await house.ada.page.reload()
    await house.ada.is_in_state("live")
    await house.ada.has()
    await house.ken.has("", "")  # the application does not show it the notes of ada
    await house.ken.visit.leave()
    house.ken.visit.forgive(r"\b404\b")


async def test_the_application_gives_tokens_and_notes_to_their_user_only(house: House) -> None:
    house.save("ada", "n", "a")
    await house.ada.has("a")
    assert house.answers("ken", "GET", "/notes/n") == 404
    assert house.answers("ken", "PUT", "/notes/n", "b") == 409
    assert house.answers("ken", "DELETE", "/notes/n") == 204
    for user, password in ((None, ""), ("ada", "thompson"), ("", ""), ("eve", "")):
        for path in ("/", "/oplog-token", "/notes/n"):
            assert house.answers(user, "GET", path, password=password) == 401
    await house.ada.page.reload()
    await house.ada.has("a")


_OPEN = """(url) => new Promise((resolve) => {
  const source = new EventSource(url, { withCredentials: true });
  source.onopen = () => { source.close(); resolve("open"); };
  source.onerror = () => { source.close(); resolve("refused"); };
})"""


async def test_a_cookie_follows_from_the_origin_of_the_agent_only(house: House) -> None:
    page, url = house.ada.page, house.walk.agent.url
    token = await page.evaluate("fetch('/oplog-token').then((answer) => answer.text())")
    cookie = {"name": "oplog", "value": token, "domain": "127.0.0.1", "path": "/ops"}
    await page.context.add_cookies([{**cookie, "httpOnly": True, "sameSite": "Strict"}])  # type: ignore[typeddict-item]
    assert await page.evaluate(_OPEN, f"{url}/ops") == "refused"
    await page.goto(f"{url}/live")
    assert await page.evaluate(_OPEN, "/ops") == "open"
    await page.context.clear_cookies()
    assert await page.evaluate(_OPEN, "/ops") == "refused"
    await house.ada.visit.leave()
    house.ada.visit.forgive(r"Access-Control-Allow-Origin|ERR_FAILED|\b401\b|dialog of its own")
