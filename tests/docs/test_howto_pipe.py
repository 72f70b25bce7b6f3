"""A reader pastes everything in the how-tos search-index.md and postgres.md, and sees the same."""

import signal
from pathlib import Path

from tests.docs.walk import Walk
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clock.waiting import attempts
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.pipe.processes import PipeProcess
from tests.kits.servers.opensearch import OpenSearchServer
from tests.kits.servers.postgres import PostgresServer

HOWTO = pages.HOWTO


def test_a_reader_of_postgres_sees_what_is_shown(tmp_path: Path, postgres: PostgresServer) -> None:
    database = postgres.new_database().rpartition("/")[2]
    there = {"localhost:5432/reports": f"127.0.0.1:{postgres.port}/{database}"}
    with Walk(tmp_path, there) as walk:
        walk.read(HOWTO / "postgres.md")
        walk.end(0, signal.SIGINT)


def test_a_reader_of_search_index_sees_what_is_shown(
    tmp_path: Path, opensearch: OpenSearchServer
) -> None:
    there = {"http://localhost:9200": opensearch.url}
    with Walk(tmp_path, there) as walk:
        walk.read(HOWTO / "search-index.md")
        walk.end(0, signal.SIGINT)
    # The second sink got all videos as a copy, which the first one got once more.
    found = opensearch.documents("videos")
    assert {id: document["title"] for id, document in found.items()} == {"x2": "A cat and a dog"}


def test_a_pipe_between_regions_sends_the_operations_of_its_region_only(tmp_path: Path) -> None:
    for name in ("west", "east"):
        (tmp_path / name).mkdir()
    with Agent(tmp_path / "west") as west, Agent(tmp_path / "east") as east:
        for snippet in snippets(HOWTO / "regions.md"):
            if snippet.word in ("regions.py", "west.yaml"):
                code = snippet.code.replace("http://localhost:8042", west.url)
                code = code.replace("http://localhost:9042", east.url)
                (tmp_path / snippet.word).write_text(code)
        with PipeProcess(tmp_path / "west.yaml") as pipe:
            pipe.wait_log("is complete")  # else the copy would bring the last states only
            for region, event in (("west", "insert"), ("east", "insert"), ("west", "delete")):
                operation = {"event": event, "type": "video", "id": region}
                west.post([{**operation, "parents": [f"region/{region}"]}])
            for _ in attempts(DEADLINE):
                if east.status()["events_ingested"] == 2:
                    break
            assert pipe.stop() == 0, pipe.text()
        assert east.status()["events_ingested"] == 2, pipe.text()
        assert west.replicate().keys() == {"video/east"}
