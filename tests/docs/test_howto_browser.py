"""The web page of docs/howto/browser.md, in Chromium."""

import http.server
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.restart import agent_on
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippet_of
from tests.kits.servers.ports import free_port
from tests.kits.web.chromium import chromium

HOUR = 3_600


@pytest.mark.browser
def test_the_page_of_another_origin_follows_and_resumes_and_can_be_loaded_again_after_a_restart(
    tmp_path: Path,
) -> None:
    seen: list[str] = []
    changed = threading.Condition()
    page = snippet_of(pages.HOWTO / "browser.md", "page.html")
    report = """<script>
      const tell = async () => {
        const answer = await fetch("/", { method: "POST", body: document.body.innerText });
        if (await answer.text() === "load again") location.reload();
      };
      new MutationObserver(tell).observe(document.body, {
        childList: true, subtree: true, characterData: true,
      });
    </script>"""
    answers: list[bytes] = []

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer((page + report).encode())

        def do_POST(self) -> None:
            with changed:
                seen.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                changed.notify_all()
                answer = answers.pop() if answers else b""
            self._answer(answer)

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    def wait_for(lines: list[str]) -> None:
        with changed:
            assert changed.wait_for(
                lambda: lines in [report.split("\n\n") for report in seen], 2 * DEADLINE
            ), seen

    port, clock = free_port(), MovedClock(tmp_path)
    flags = ("--listen", f"127.0.0.1:{port}", "--max-connection-age", "1h")
    with (
        MovedAgent(tmp_path, *flags, environ=clock.environ) as agent,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server,
    ):
        page = page.replace("localhost:8042", f"127.0.0.1:{agent.port}")
        agent.post([{"event": "insert", "type": "video", "id": f"x{n}"} for n in (1, 2)])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = [
            "--headless",
            "--remote-debugging-port=0",  # else the headless shell ends with the page
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
        ]
        url = f"http://127.0.0.1:{server.server_address[1]}/page.html"
        with subprocess.Popen(
            [chromium(), *options, url], stderr=subprocess.DEVNULL, start_new_session=True
        ) as browser:
            try:
                wait_for(["live", "video x1\nvideo x2"])
                agent.post(
                    [
                        {"event": "delete", "type": "video", "id": "x1"},
                        {"event": "insert", "type": "user", "id": "u"},
                    ]
                )
                for ended in (1, 2):
                    clock.move(2 * HOUR)
                    agent.wait_status(connections=ended + 1)
                agent.post({"event": "insert", "type": "video", "id": "x3"})
                wait_for(["connected", "video x2\nvideo x3"])
                agent.wait_status(
                    events_sent=4
                )  # two inserts, a delete, an insert: nothing came again
                assert agent.stop() == 0
                with agent_on(port, tmp_path) as restarted:
                    restarted.post({"event": "insert", "type": "video", "id": "x4"})
                    wait_for(["connected", "video x2\nvideo x3\nvideo x4"])
                    answers.append(b"load again")
                    restarted.post({"event": "delete", "type": "video", "id": "x4"})
                    wait_for(["live", "video x2\nvideo x3"])  # as after a copy, not after a delete
            finally:
                os.killpg(browser.pid, signal.SIGKILL)
                server.shutdown()
