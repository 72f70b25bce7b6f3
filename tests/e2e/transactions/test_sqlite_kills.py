"""A process is killed in the middle of a commit in a SQLite file."""

from pathlib import Path

import pytest

from oplogd.model.event_id import Mark, format_id
from oplogd.model.transaction import Marker, State
from oplogd.store.topics import EntryKind
from tests.e2e.transactions.commit_process import committing
from tests.kits.models.operations import numbered
from tests.kits.store.kits import log_of, states_of
from tests.kits.store.messages import named
from tests.kits.store.sqlite_files import opened
from tests.kits.store.transacting import (
    begin,
    decisions_in,
    oplog_record,
    payloads_committed,
    record,
    told_in,
    write,
)

OPERATIONS = 1000
RECORDS = 3 * OPERATIONS


@pytest.mark.parametrize(
    "point", ["INSERT INTO ops", "INSERT INTO states", "UPDATE txns", "COMMIT", "nothing"]
)
async def test_a_commit_that_was_killed_has_happened_whole_or_not_at_all(
    tmp_path: Path, point: str
) -> None:
    path = tmp_path / "oplog.db"
    async with opened(path) as store:
        topics = [await store.topics.create(named(name), None) for name in "ab"]
        transaction = await begin(store)
        written = []
        for n, made in enumerate(numbered(OPERATIONS)):
            lsn = 3 * n
            written += [record(lsn, topics[0], lsn), record(lsn + 1, topics[1], lsn + 1)]
            written.append(oplog_record(lsn + 2, made))
        await write(store, transaction, *written)
        id_ = str(transaction.id)
        with committing(path, transaction.id, RECORDS, point):
            if point != "nothing":  # the process holds a large transaction of SQLite
                assert [await payloads_committed(store, topic) for topic in topics] == [[], []]
                assert (await store.read(0, 1), await states_of(store)) == ([], [])
        if point != "nothing":
            assert [await decisions_in(store, topic) for topic in topics] == [[], []]
            assert (await store.read(0, 1), await states_of(store)) == ([], [])
            assert (await store.transactions.find(transaction.id)).state == State.OPEN
        commit = await store.transactions.commit(transaction.id, RECORDS)
        assert store.transactions.decisions.committed == (point != "nothing")
    async with opened(path) as store:
        assert await store.transactions.commit(transaction.id, RECORDS) == commit
        for n, topic in enumerate(topics):
            lsns = range(n, RECORDS, 3)
            assert await payloads_committed(store, topic) == [str(lsn) for lsn in lsns]
            marker = Marker(id_, OPERATIONS, lsns[-1])
            assert await decisions_in(store, topic) == [(EntryKind.COMMIT, marker)]
        assert [key for key, _ in await told_in(store)] == [id_, id_]
        entries = await log_of(store)
        assert [entry.offset for entry in entries] == [*range(1, OPERATIONS + 1)]
        ids = [format_id(Mark(entry.offset, entry.ms)) for entry in entries]
        assert [*commit.record_ids()][2::3] == ids
        assert len(await states_of(store)) == OPERATIONS
