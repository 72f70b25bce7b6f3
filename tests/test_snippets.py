"""Every command and snippet of the documents is run, or listed here with the reason why not."""

import http.server
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.agents import DEADLINE, Agent
from tests.clients.restart import agent_on, free_port
from tests.conftest import ROOT
from tests.contract.wire import wait_until
from tests.snippets import Reader, Snippet, documents, name_of, snippets

ELSEWHERE = {
    "docs/clients.md": {"python": "tests/clients/test_docs.py", "sh": "tests/clients/test_docs.py", "js": "tests/clients/test_docs.py"},
    "docs/howto/bootstrap.md": {"sh": "tests/sync/test_bootstrap.py", "text": "tests/sync/test_bootstrap.py"},
    "docs/reference.md": {"json": "tests/test_docs.py", "sh": "tests/test_docs.py", "html": "tests/browser/test_other_origin.py"},
    "docs/sync.md": {"python": "tests/sync/test_docs.py"},
}  # fmt: skip
"""Document -> language -> the module that runs all its snippets in that language."""

INSTALLS = "installs packages; tests/test_checkout.py pastes it into a copy of the checkout"
PICTURE = "a picture"
NAMES = "tests/deploy checks the files and the names in the commands"
MONGOSH = "for MongoDB's own shell; tests/mongo/test_migration.py tries the steps"
NOT_RUN = {
    "README.md": {
        "make demo   # an agent with a small producer; prints what to open and what to paste": (
            "tests/test_checkout.py runs the demo, and these are the tests"
        ),
        "python3 -m venv .venv": INSTALLS,
        "producers ──UDP───┐                                          ┌──► consumer   live": PICTURE,
    },
    "docs/deployment.md": {
        "docker build --file deploy/Containerfile --tag oplogd .": f"needs Docker; {NAMES}",
        "docker compose --file deploy/compose.yaml up --build --detach": f"needs Docker; {NAMES}",
        "python3 -m venv /opt/oplog": f"needs root and systemd; {NAMES}",
        "kubectl create namespace oplog": f"needs a cluster; {NAMES}",
        "PATH=/opt/oplog/bin:$PATH SPARK_DRIVER_MEMORY=4g deploy/spark/oplog-sync.sh --store /var/lib/oplogd/oplog.db --max-deletes 5% /dumps/": (
            "tests/sync/test_submit.py runs the script"
        ),
    },
    "docs/design.md": {"producers ──UDP──► ingest/udp ─┐                                  ┌─► stream ──► consumers": PICTURE},
    "docs/howto/browser.md": {
        "<!doctype html>": "test_the_page_of_another_origin_follows_and_resumes_and_can_be_loaded_again_after_a_restart opens it",
        "python -m http.server 8000": "that test serves the page itself, on a free port",
    },
    "docs/howto/search-index.md": {
        "service ── writes ──► its database ◄── reads the object ── indexer ── writes ──► index": PICTURE,
    },
    "docs/migration.md": {
        'db.oplog_states.countDocuments({ event: "insert" });': MONGOSH,
        "db.oplog_ops_of_first_server.drop();": MONGOSH,
        "db.oplog_ops.drop();": MONGOSH,
    },
    "docs/releases.md": {"pip wheel --no-deps -w dist . ./clients/python": INSTALLS},
    "docs/mongodb.md": {"oplogd --mongo-url 'mongodb://db1,db2,db3/oplog?replicaSet=rs0'": "needs a replica set"},
    "docs/quickstart.md": {"python3 -m venv .venv": INSTALLS},
    "docs/sync.md": {
        "pip install -c constraints.txt -e '.[sync]'": "tests/test_checkout.py runs the same without the extra, which is large",
        "oplog-sync --store oplog.db dump.jsonl.gz": "docs/howto/bootstrap.md runs the command",
        '{"timestamp":"2014-11-06T03:04:39.041-08:00","parents":["user/x3kd2"],"type":"video","id":"xekw"}': (
            "a row; tests/sync/test_formats.py reads such rows"
        ),
        "type   insert  update  delete  untouched  skipped  invalid  duplicate": "a report, as in docs/howto/bootstrap.md",
        """spark-submit --master 'local[8]' --driver-memory 8g "$(python -c 'import oplog_sync; print(oplog_sync.__path__[0])')/__main__.py" \\""": (
            "tests/sync/test_submit.py submits it on a smaller machine"
        ),
        "oplog-sync --mongo-url 'mongodb://db1,db2,db3/oplog?replicaSet=rs0' dump.jsonl.gz": "needs a replica set",
        "pip wheel --no-deps -w . . && mv oplog-*.whl oplog.zip": (
            "tests/test_checkout.py builds it, tests/sync/test_submit.py submits to a cluster of its own"
        ),
    },
}  # fmt: skip
"""Document -> first line of a snippet -> why nobody runs it."""

RUNNABLE = {("sh", ""), ("sh", "stays"), ("python", ""), ("text", ""), ("text", "stays")}


def unaccounted(name: str, found: list[Snippet]) -> list[Snippet]:
    """The snippets of a document that nothing runs and that are not listed."""
    listed = NOT_RUN.get(name, {})
    left = []
    for number, snippet in enumerate(found):
        if snippet.first in listed:
            continue
        if name in ELSEWHERE:
            known = snippet.language in ELSEWHERE[name]
        elif snippet.word in ("", "stays"):
            known = (snippet.language, snippet.word) in RUNNABLE
        else:  # saved under a name, which must be used
            known = any(
                snippet.word in later.code
                for later in found[number + 1 :]
                if later.language == "sh"
            )
        if not known:
            left.append(snippet)
    return left


def test_every_snippet_is_run_or_listed_with_the_reason() -> None:
    left = {name_of(path): unaccounted(name_of(path), snippets(path)) for path in documents()}
    assert {name: found for name, found in left.items() if found} == {}


def test_nothing_is_listed_that_is_not_there() -> None:
    there = {name_of(path): {snippet.first for snippet in snippets(path)} for path in documents()}
    stale = {
        (name, first)
        for name, listed in NOT_RUN.items()
        for first in listed
        if first not in there.get(name, set())
    }
    assert stale == set()
    for name, modules in ELSEWHERE.items():
        for language, module in modules.items():
            assert any(snippet.language == language for snippet in snippets(ROOT / name))
            assert Path(name).name in (ROOT / module).read_text(encoding="utf-8")


@pytest.mark.parametrize("info", ["", "toml", "js", "sh sometimes", "python unused.py"])
def test_a_new_snippet_that_nobody_runs_is_noticed(info: str) -> None:
    language, _, word = info.partition(" ")
    new = Snippet(1, language, word, "something new\n", "")
    assert unaccounted("docs/quickstart.md", [*snippets(ROOT / "docs/quickstart.md"), new]) == [new]


def walked(document: Path) -> bool:
    listed = NOT_RUN.get(name_of(document), {})
    return name_of(document) not in ELSEWHERE and any(
        each.first not in listed for each in snippets(document)
    )


WALKED = [path for path in documents() if walked(path)]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Reader(tmp_path) as reader:
        yield reader


@pytest.mark.parametrize("document", WALKED, ids=name_of)
def test_a_reader_who_pastes_everything_sees_what_is_shown_and_again_after_a_restart(
    document: Path, reader: Reader
) -> None:
    def prepare() -> None:
        if name_of(document).startswith("clients/"):  # these pages take an agent for granted
            reader.start_agent([])

    reader.read_twice(document, NOT_RUN.get(name_of(document), {}), prepare)


def saved(document: str, name: str) -> str:
    (found,) = [snippet.code for snippet in snippets(ROOT / document) if snippet.word == name]
    return found


@contextmanager
def running(reader: Reader, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, *command], cwd=reader.folder, env=reader.environ, stdout=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_search_index_forgets_what_a_reset_does_not_bring(
    reader: Reader, tmp_path: Path
) -> None:
    for name in ("index.py", "service.py"):
        code = saved("docs/howto/search-index.md", name)
        (reader.folder / name).write_text(code)
    (tmp_path / "new").mkdir()

    def titles() -> set[str]:
        with closing(sqlite3.connect(reader.folder / "index.db", isolation_level=None)) as index:
            index.execute("BEGIN")
            if index.execute(
                "SELECT count(*) FROM sqlite_master WHERE name IN ('entries', 'titles')"
            ).fetchone() != (2,):
                return set()
            assert (
                index.execute("SELECT count(*) FROM entries").fetchone()
                == index.execute("SELECT count(*) FROM titles").fetchone()
            )
            return {title for (title,) in index.execute("SELECT title FROM titles")}

    with Agent(reader.folder) as agent:
        service, index = (reader.folder / name for name in ("service.py", "index.py"))
        for path in (service, index):
            path.write_text(path.read_text().replace("localhost:8042", f"127.0.0.1:{agent.port}"))
        for number in range(3):
            reader.run([sys.executable, "service.py", "insert", f"x{number}", f"title {number}"])
        with running(reader, "index.py"):
            assert wait_until(
                lambda: (
                    (reader.folder / "index.db").exists()
                    and titles() == {"title 0", "title 1", "title 2"}
                )
            )
        address = f"127.0.0.1:{agent.port}"
    with Agent(tmp_path / "new") as other:  # another history, which knows two of the videos
        index.write_text(index.read_text().replace(address, f"127.0.0.1:{other.port}"))
        assert (
            other.post(
                [{"event": "update", "type": "video", "id": f"x{number}"} for number in (1, 2, 9)]
            )
            == 200
        )
        with running(reader, "index.py"):
            assert wait_until(lambda: titles() == {"title 1", "title 2"})


def test_relays_survive_a_kill_and_a_reset_and_send_nothing_round(
    reader: Reader, tmp_path: Path
) -> None:
    (reader.folder / "relay.py").write_text(saved("docs/howto/regions.md", "relay.py"))
    for name in ("west", "east", "new"):
        (tmp_path / name).mkdir()

    def operation(event: str, id_: str, region: str) -> dict[str, object]:
        return {"event": event, "type": "video", "id": id_, "parents": [f"region/{region}"]}

    with Agent(tmp_path / "west") as west, Agent(tmp_path / "east") as east:
        west_to_east = ["relay.py", west.url, east.url, "west"]
        with (
            running(reader, *west_to_east) as relay,
            running(reader, "relay.py", east.url, west.url, "east"),
        ):
            west.post([operation("insert", f"w{number}", "west") for number in range(1000)])
            east.post([operation("insert", f"e{number}", "east") for number in range(10)])
            assert wait_until(lambda: east.status()["store"]["ops"] > 100)
            relay.kill()
            relay.wait(DEADLINE)
            west.post([operation("delete", f"w{number}", "west") for number in range(0, 1000, 2)])
            with running(reader, *west_to_east):
                left = {f"video/w{number}" for number in range(1, 1000, 2)} | {
                    f"video/e{number}" for number in range(10)
                }
                assert wait_until(lambda: east.replicate().keys() == left)
                assert wait_until(lambda: west.replicate().keys() == left)
                west.wait_status(events_ingested=1510)  # of which ten came from the east
        with Agent(tmp_path / "new") as other:  # the west begins anew with one of its objects
            other.post([operation("update", "w1", "west"), operation("insert", "w-new", "west")])
            with running(reader, "relay.py", other.url, east.url, "west"):
                left = {"video/w1", "video/w-new"} | {f"video/e{number}" for number in range(10)}
                assert wait_until(lambda: east.replicate().keys() == left)


def test_the_page_of_another_origin_follows_and_resumes_and_can_be_loaded_again_after_a_restart(
    tmp_path: Path,
) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: install the package chromium"
    seen: list[str] = []
    changed = threading.Condition()
    page = saved("docs/howto/browser.md", "page.html")
    report = """<script>
      const tell = async () => {
        const answer = await fetch("/", { method: "POST", body: document.body.innerText });
        if (await answer.text() === "load again") location.reload();
      };
      new MutationObserver(tell).observe(document.body, { childList: true, subtree: true, characterData: true });
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

    port, flags = free_port(), ("--max-connection-age", "1s")
    with (
        agent_on(port, tmp_path, *flags) as agent,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server,
    ):
        page = page.replace("localhost:8042", f"127.0.0.1:{agent.port}")
        agent.post([{"event": "insert", "type": "video", "id": f"x{n}"} for n in (1, 2)])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
        ]
        url = f"http://127.0.0.1:{server.server_address[1]}/page.html"
        with subprocess.Popen(
            [chromium, *options, url], stderr=subprocess.DEVNULL, start_new_session=True
        ) as browser:
            try:
                wait_for(["live", "video x1\nvideo x2"])
                agent.post(
                    [
                        {"event": "delete", "type": "video", "id": "x1"},
                        {"event": "insert", "type": "user", "id": "u"},
                    ]
                )
                assert wait_until(lambda: agent.status()["connections"] >= 3)
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
