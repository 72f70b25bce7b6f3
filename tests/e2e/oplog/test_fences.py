"""Processes that take the lease from each other and append to one SQLite file."""

from pathlib import Path

from tests.e2e.oplog.fence_process import fenced_appender
from tests.kits.store.leasing import ids_of
from tests.kits.store.messages import NAME, payloads_of
from tests.kits.store.sqlite_files import opened


async def test_no_append_of_a_process_lands_behind_a_later_term_of_another_process(
    tmp_path: Path,
) -> None:
    path = tmp_path / "oplog.db"
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        with fenced_appender(path, topic.log) as one, fenced_appender(path, topic.log) as two:
            for process in (one, two):
                process.wait_until_refused()
            accepted = [process.end() for process in (one, two)]
        terms = [sorted(each["oplog"]) for each in accepted]
        assert sorted(terms[0] + terms[1]) == list(range(1, len(terms[0] + terms[1]) + 1))
        for name, found in (
            ("topic", await payloads_of(store.topics, topic)),
            ("oplog", await ids_of(store)),
        ):
            counts = accepted[0][name] + accepted[1][name]
            assert found == [str(term) for term in sorted(counts) for _ in range(counts[term])]
