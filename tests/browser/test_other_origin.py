"""Pages of other origins follow the stream: with EventSource, a token, or the JavaScript client."""

import base64
import json
import re
import urllib.request
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.test_dashboard import REFUSED, operation
from tests.browser.visit import REBOUND, Visit
from tests.browser.website import Answer, Website
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippet_of
from tests.kits.paths import ROOT
from tests.kits.servers.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")

PASSWORD = "gehéim"
AUTHORIZATION = {"Authorization": "Basic " + base64.b64encode(f":{PASSWORD}".encode()).decode()}

_FOLLOW = """<!doctype html><html lang="en"><title>follows</title><ol></ol><p></p><script>
const source = new EventSource(new URLSearchParams(location.search).get("url"));
const state = document.querySelector("p");
source.onopen = () => { state.textContent = "open"; };
source.onerror = () => {
  state.textContent = source.readyState === EventSource.CLOSED ? "closed" : "connecting";
};
for (const kind of ["insert", "update", "delete", "reset", "live"]) {
  source.addEventListener(kind, (event) => {
    const item = document.createElement("li");
    item.textContent = event.data ? `${kind} ${JSON.parse(event.data).id}` : kind;
    document.querySelector("ol").append(item);
  });
}
</script>"""

_CLIENT = """<!doctype html><html lang="en"><title>client</title><ol></ol><script type="module">
import { Consumer, localStorageState } from "./oplog.js";
const query = new URLSearchParams(location.search);
const consumer = new Consumer(query.get("url"), {
  start: "0", password: query.get("password"), state: localStorageState("place"),
  saveInterval: 0.01, backoff: [0.05, 0.2],
});
for await (const event of consumer) {
  const item = document.createElement("li");
  item.textContent = event.type ? `${event.event} ${event.id}` : event.event;
  document.querySelector("ol").append(item);
  consumer.ack(event);
}
</script>"""


def html(text: str) -> Answer:
    return "text/html; charset=utf-8", text.encode()


async def expect_items(page: Page, *items: str) -> None:
    await expect(page.locator("li")).to_have_text(list(items))


async def open_page(visit: Visit, website: Website, agent: Agent, url: str) -> Page:
    visit.hosts.add(f"127.0.0.1:{agent.port}")
    return await visit.open(f"{website.url}{url}")


def post_token(agent: Agent) -> dict[str, str]:
    """Get a token, like the server of the other page."""
    given = base64.b64encode(f":{PASSWORD}".encode()).decode()
    request = urllib.request.Request(
        f"{agent.url}/token", method="POST", headers={"Authorization": f"Basic {given}"}, data=b""
    )
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        token: dict[str, str] = json.load(answer)
        return token


@pytest.mark.parametrize("password", [None, PASSWORD], ids=["open", "token"])
async def test_a_page_of_another_origin_follows_and_resumes(
    website: Website, visit: Visit, tmp_path: Path, password: str | None
) -> None:
    website.pages["/"] = html(_FOLLOW)
    port, flags = free_port(), ("--password", password) if password else ()
    with agent_on(port, tmp_path, *flags) as agent:
        token = f"%26token={post_token(agent)['token']}" if password else ""
        page = await open_page(visit, website, agent, f"/?url={agent.url}/ops%3Ftypes=video{token}")
        await expect(page.locator("p")).to_have_text("open")
        agent.post(
            [
                operation("insert", "a"),
                operation("insert", "b", "comment"),
                operation("update", "a"),
            ]
        )
        await expect_items(page, "insert a", "update a")
        assert agent.stop() == 0
    with Agent(tmp_path) as elsewhere:
        elsewhere.post([operation("insert", "c"), operation("delete", "a")])
    await expect(page.locator("p")).to_have_text("connecting")
    with agent_on(port, tmp_path, *flags) as agent:
        agent.post(operation("insert", "d"))
        await expect_items(page, "insert a", "update a", "insert c", "delete a", "insert d")
        await visit.leave()
    visit.forgive(REFUSED)


async def test_a_page_of_another_origin_with_a_wrong_token_is_refused(
    website: Website, visit: Visit, tmp_path: Path
) -> None:
    website.pages["/"] = html(_FOLLOW)
    with Agent(tmp_path, "--password", PASSWORD) as agent:
        page = await open_page(
            visit, website, agent, f"/?url={agent.url}/ops%3Ftoken=token.9999999999.{'x' * 43}"
        )
        await expect(page.locator("p")).to_have_text("closed")
        await visit.leave()
        assert visit.forgive(r"\b401\b") == 1
        visit.forgive("dialog of its own")  # only a page of the agent's origin causes one


_SEND = """([method, url, headers]) =>
  fetch(url, {method, headers, body: method === "POST" ? "{}" : null}).then(
    (answer) => answer.status, () => "refused")"""


async def test_a_page_of_another_origin_can_read_and_never_write(
    website: Website, visit: Visit, tmp_path: Path
) -> None:
    website.pages["/"] = html("<!doctype html><title>writes</title>")
    with Agent(tmp_path, "--password", PASSWORD) as agent:
        page = await open_page(visit, website, agent, "/")
        status = await page.evaluate(
            "async (url) => (await (await fetch(url)).json()).status", f"{agent.url}/status"
        )
        assert status == "OK"
        for method, path, headers, answer in (
            ("POST", "/ops", {"Content-Type": "application/json"}, "refused"),
            ("POST", "/ops", {"Content-Type": "application/x-ndjson"}, "refused"),
            ("POST", "/ops", {"Content-Type": "text/plain"}, 415),
            ("POST", "/session", {"Content-Type": "application/json"}, "refused"),
            ("POST", "/session", {"Content-Type": "text/plain"}, 415),
            ("DELETE", "/session", {}, "refused"),
            (
                "POST",
                "/token",
                AUTHORIZATION,
                "refused",
            ),  # the request is sent, but its answer cannot be read
        ):
            assert await page.evaluate(_SEND, [method, agent.url + path, headers]) == answer
        assert agent.status()["events_received"] == 0
        await visit.leave()
    visit.forgive(r"CORS policy|ERR_FAILED|\b415\b")


@pytest.mark.parametrize(
    ("flags", "answers"),
    [
        ((), {"localhost": 204, "127.0.0.1": 204, "agent.localhost": 204, REBOUND: 403}),
        (("--allowed-hosts", f"other,{REBOUND}"), {REBOUND: 204}),
    ],
    ids=["open", "allowed-hosts"],
)
async def test_a_page_of_the_agents_own_origin_may_write_only_under_a_name_of_the_agent(
    visit: Visit, tmp_path: Path, flags: tuple[str, ...], answers: dict[str, int]
) -> None:
    with Agent(tmp_path, *flags) as agent:
        send = """([url, body]) => fetch(url, {
            method: "POST",
            headers: {"Content-Type": "application/json"},
            body: JSON.stringify(body),
        }).then((answer) => answer.status)"""
        taken = 0
        for host, answer in answers.items():
            page = await visit.open(f"http://{host}:{agent.port}/")
            assert await page.evaluate(send, ["/ops", operation("insert", "a")]) == answer
            taken += answer == 204
            assert agent.status()["events_ingested"] == taken
        await visit.leave()
    assert visit.forgive(r"\b403\b") == list(answers.values()).count(403)


async def test_the_example_page_of_the_docs_follows_with_renewed_tokens(
    website: Website, visit: Visit, tmp_path: Path
) -> None:
    (snippet,) = re.findall(
        r"^```html\n(.*?)^```", pages.PASSWORDS.read_text(), re.DOTALL | re.MULTILINE
    )
    port = free_port()
    with agent_on(port, tmp_path, "--password", PASSWORD) as agent:
        website.pages["/"] = html(snippet.replace("https://oplog.example.com", agent.url))
        tokens = [f"token.1.{'x' * 43}"]  # an expired token, as after a long break
        asked: list[str] = []

        def give_token() -> Answer:
            asked.append(tokens.pop() if tokens else post_token(agent)["token"])
            return "text/plain", asked[-1].encode()

        website.pages["/oplog-token"] = give_token
        agent.post([operation("insert", "a"), operation("insert", "b")])
        page = await open_page(visit, website, agent, "/")
        await expect_items(page, "insert video/a", "insert video/b")
        assert len(asked) == 2
        agent.post([operation("delete", "a"), operation("update", "b")])
        await expect_items(
            page, "insert video/a", "insert video/b", "delete video/a", "update video/b"
        )
        assert agent.stop() == 0
    with agent_on(port, tmp_path, "--password", PASSWORD) as agent:
        agent.post(operation("insert", "c"))
        await expect_items(
            page,
            "insert video/a",
            "insert video/b",
            "delete video/a",
            "update video/b",
            "insert video/c",
        )
        await page.reload()
        await expect_items(page, "insert video/b", "insert video/c")
        await visit.leave()
    assert visit.forgive(r"\b401\b") == 1
    visit.forgive("dialog of its own")
    visit.forgive(REFUSED)


def serve_client(website: Website) -> None:
    website.pages["/"] = html(_CLIENT)
    folder = ROOT / "clients" / "js"
    for module in (folder / "oplog.js", *(folder / "lib").glob("*.js")):
        website.pages[f"/{module.relative_to(folder).as_posix()}"] = (
            "text/javascript",
            module.read_bytes(),
        )


async def test_the_javascript_client_takes_the_password_from_the_address(
    website: Website, visit: Visit, tmp_path: Path
) -> None:
    serve_client(website)
    with Agent(tmp_path, "--password", PASSWORD) as agent:
        agent.post(operation("insert", "a"))
        page = await open_page(
            visit, website, agent, f"/?url=http://any:{PASSWORD}@127.0.0.1:{agent.port}"
        )
        await expect_items(page, "reset", "insert a", "live")
        await visit.leave()


async def test_the_documented_page_of_another_origin_follows_a_topic_and_resumes(
    website: Website, visit: Visit, tmp_path: Path
) -> None:
    serve_client(website)
    topic = "/v1/namespaces/shop/topics/orders"
    with Agent(tmp_path, "--password", PASSWORD) as agent:

        def publish(*payloads: str) -> None:
            assert agent.request("POST", f"{topic}/publish", {"messages": payloads}).status == 200

        assert agent.request("PUT", topic).status == 200
        code = snippet_of(pages.CLIENT["js"], "page").replace('"oplog-client"', '"./oplog.js"')
        code = code.replace("localhost:8042", f"any:{PASSWORD}@127.0.0.1:{agent.port}")
        website.pages["/"] = html(f"""<!doctype html><html lang="en"><title>topic</title><ol></ol>
            <script type="module">
            console.log = (text) => {{
              const item = document.createElement("li");
              item.textContent = text;
              document.querySelector("ol").append(item);
            }};
            {code}</script>""")
        page = await open_page(visit, website, agent, "/")
        agent.wait_status(clients=1)
        publish("a", "b")
        await expect_items(page, "a", "b")
        last = json.loads(agent.request("POST", f"{topic}/poll", None, AUTHORIZATION).body)[-1]
        await page.wait_for_function(
            "(id) => localStorage.getItem('orders') === id", arg=last["id"]
        )
        await page.goto(f"{website.url}/none")
        publish("c")
        await page.goto(website.url)
        await expect_items(page, "c")
        assert agent.request("DELETE", topic).status == 200
        assert agent.request("PUT", topic).status == 200
        publish("d")
        await page.reload()
        await expect_items(page, "reset", "d")
        await visit.leave()
    visit.forgive(r"\b404\b|TopicNotFoundError")


async def test_the_javascript_client_follows_a_redirect_that_the_browser_hides(
    website: Website, visit: Visit, tmp_path: Path
) -> None:
    serve_client(website)
    with Agent(tmp_path) as agent:
        agent.post(operation("insert", "a"))
        website.redirects["/moved/ops"] = f"{agent.url}/ops"
        page = await open_page(visit, website, agent, f"/?url={website.url}/moved")
        await expect_items(page, "reset", "insert a", "live")
        await visit.leave()


async def test_the_javascript_client_keeps_its_position_over_a_reload_and_a_restart(
    website: Website, visit: Visit, tmp_path: Path
) -> None:
    serve_client(website)
    port = free_port()
    with agent_on(port, tmp_path, "--password", PASSWORD) as agent:
        agent.post([operation("insert", "a"), operation("insert", "b"), operation("delete", "a")])
        page = await open_page(visit, website, agent, f"/?url={agent.url}&password={PASSWORD}")
        await expect_items(page, "reset", "insert b", "live")
        agent.post(operation("insert", "c"))
        await expect_items(page, "reset", "insert b", "live", "insert c")
        newest = agent.status()["store"]["newest_id"]
        await page.wait_for_function("(id) => localStorage.getItem('place') === id", arg=newest)
        await page.goto("about:blank")
        agent.post([operation("insert", "d"), operation("delete", "b")])
        await page.goto(f"{website.url}/?url={agent.url}&password={PASSWORD}")
        await expect_items(page, "insert d", "delete b")
        assert agent.stop() == 0
    with Agent(tmp_path) as elsewhere:
        elsewhere.post(operation("insert", "e"))
    with agent_on(port, tmp_path, "--password", PASSWORD) as agent:
        agent.post(operation("insert", "f"))
        await expect_items(page, "insert d", "delete b", "insert e", "insert f")
        await visit.leave()
    visit.forgive(REFUSED)
