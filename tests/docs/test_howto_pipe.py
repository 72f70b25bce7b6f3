"""A reader pastes everything in the how-tos search-index.md and postgres.md, and sees the same."""

import signal
from pathlib import Path

from tests.docs.walk import Walk
from tests.kits.paths import ROOT
from tests.kits.servers.opensearch import OpenSearchServer
from tests.kits.servers.postgres import PostgresServer

HOWTO = ROOT / "docs/howto"


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
