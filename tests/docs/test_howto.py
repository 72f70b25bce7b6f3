"""The programs of the how-to guides do as promised when agents restart, reset or are killed."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.contract.wire import wait_until
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippet_of
from tests.kits.processes import forked
from tests.kits.processes.forked import Forked


@contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with Forked[bytes](
        [sys.executable, *command], cwd=folder, stdout=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_search_index_forgets_what_a_reset_does_not_bring(tmp_path: Path) -> None:
    for name in ("index.py", "service.py"):
        code = snippet_of(pages.HOWTO / "search-index.md", name)
        (tmp_path / name).write_text(code)
    (tmp_path / "new").mkdir()

    def titles() -> set[str]:
        with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as index:
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

    with Agent(tmp_path) as agent:
        service, index = (tmp_path / name for name in ("service.py", "index.py"))
        for path in (service, index):
            path.write_text(path.read_text().replace("localhost:8042", f"127.0.0.1:{agent.port}"))
        for number in range(3):
            forked.run(
                [sys.executable, "service.py", "insert", f"x{number}", f"title {number}"],
                cwd=tmp_path,
                check=True,
            )
        with running(tmp_path, "index.py"):
            assert wait_until(
                lambda: (
                    (tmp_path / "index.db").exists()
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
        with running(tmp_path, "index.py"):
            assert wait_until(lambda: titles() == {"title 1", "title 2"})


def test_relays_survive_a_kill_and_a_reset_and_send_nothing_round(tmp_path: Path) -> None:
    (tmp_path / "relay.py").write_text(snippet_of(pages.HOWTO / "regions.md", "relay.py"))
    for name in ("west", "east", "new"):
        (tmp_path / name).mkdir()

    def operation(event: str, id_: str, region: str) -> dict[str, object]:
        return {"event": event, "type": "video", "id": id_, "parents": [f"region/{region}"]}

    with Agent(tmp_path / "west") as west, Agent(tmp_path / "east") as east:
        west_to_east = ["relay.py", west.url, east.url, "west"]
        with (
            running(tmp_path, *west_to_east) as relay,
            running(tmp_path, "relay.py", east.url, west.url, "east"),
        ):
            west.post([operation("insert", f"w{number}", "west") for number in range(1000)])
            east.post([operation("insert", f"e{number}", "east") for number in range(10)])
            assert wait_until(lambda: east.status()["store"]["ops"] > 100)
            relay.kill()
            relay.wait(DEADLINE)
            west.post([operation("delete", f"w{number}", "west") for number in range(0, 1000, 2)])
            with running(tmp_path, *west_to_east):
                left = {f"video/w{number}" for number in range(1, 1000, 2)} | {
                    f"video/e{number}" for number in range(10)
                }
                assert wait_until(lambda: east.replicate().keys() == left)
                assert wait_until(lambda: west.replicate().keys() == left)
                west.wait_status(events_ingested=1510)  # of which ten came from the east
        with Agent(tmp_path / "new") as other:  # another history of the west
            other.post([operation("update", "w1", "west"), operation("insert", "w-new", "west")])
            with running(tmp_path, "relay.py", other.url, east.url, "west"):
                left = {"video/w1", "video/w-new"} | {f"video/e{number}" for number in range(10)}
                assert wait_until(lambda: east.replicate().keys() == left)
