"""The owners of transactions in SQLite files: older files and agents, shared statements, cost."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from oplogd.model.transaction import State
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.transactions import rows, whole
from oplogd.store.transactions import Commit
from tests.kits.clock.virtual import VirtualClock
from tests.kits.store.held_thread import held_thread
from tests.kits.store.messages import NAME
from tests.kits.store.sqlite_files import count, direct, opened, schema_of, steps_of
from tests.kits.store.transacting import LIMITS, begin, new_transaction, record

ADA, BOB = "sub:ada", "user:bob"
DAY_MS = 86_400_000
# A row as an agent of the version before writes it, and removes it.
INSERT = """
    INSERT INTO txns SELECT ?, log, 'default', NULL, 'open', NULL,
    begun, expires, ends, '[]', 0, 0, NULL, NULL, NULL, NULL, NULL FROM txns LIMIT 1
"""
DELETE = "DELETE FROM txns WHERE id = ?"

pytestmark = pytest.mark.usefixtures("no_fsync")


async def test_transactions_in_a_file_of_the_version_before_have_no_owner(path: Path) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        ended, still_open = await begin(store), await begin(store)
        await store.transactions.commit(ended.id, 0)
    now = schema_of(path)
    with direct(path) as db:
        db.execute("DROP TRIGGER txn_owners_leave")
        db.execute("DROP TABLE txn_owners")
    async with opened(path, clock) as store:
        assert schema_of(path) == now
        transactions = store.transactions
        assert (await transactions.find(ended.id)).owner is None
        new = (await new_transaction(store))._replace(owner=ADA)
        begun = await transactions.begin(new)
        assert (await transactions.commit(still_open.id, 0)).transaction.owner is None
        assert await transactions.select(None, None, 9, owner=ADA) == [begun]
    async with opened(path, clock) as store:
        assert await store.transactions.find(begun.id) == begun


async def test_an_agent_of_the_version_before_goes_on_with_the_file(path: Path) -> None:
    async with opened(path) as store:
        new = (await new_transaction(store))._replace(owner=ADA)
        begun = await store.transactions.begin(new)
        with direct(path) as db:
            db.execute(INSERT, (begun.id + 1,))
        assert (await store.transactions.find(begun.id + 1)).owner is None
        assert count(path, "txn_owners") == 1
        with direct(path) as db:
            db.execute(DELETE, (begun.id,))
        assert count(path, "txn_owners") == 0


async def test_the_keeper_forgets_owners_with_their_transactions(path: Path) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        new = (await new_transaction(store))._replace(owner=ADA)
        begun = await store.transactions.begin(new)
        await store.transactions.commit(begun.id, 0)
        clock.ms += 3 * DAY_MS
        await store.transactions.keep()
        assert (count(path, "txns"), count(path, "txn_owners")) == (0, 0)


async def test_whole_ones_that_share_statements_keep_their_owners(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = []
    commit_together = whole.commit_together

    def noting(step: SharedStep, wholes: Sequence[whole.Whole]) -> list[Commit]:
        shared.append(len(wholes))
        return commit_together(step, wholes)

    monkeypatch.setattr(whole, "commit_together", noting)
    owners = [ADA, None, BOB, ADA, None]
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        new = await new_transaction(store)
        async with held_thread(store._writer):
            waiting = [
                asyncio.ensure_future(
                    store.transactions.commit_whole(
                        new._replace(owner=owner), [record(0, topic, "a")], LIMITS
                    )
                )
                for owner in owners
            ]
        commits = await asyncio.gather(*waiting)
    assert sum(shared) == len(owners)
    assert max(shared) >= len(owners) - 1, "they shared"
    async with opened(path) as store:
        for commit, owner in zip(commits, owners, strict=True):
            assert commit.transaction.owner == owner
            assert await store.transactions.find(commit.transaction.id) == commit.transaction
        found = await store.transactions.select(None, None, 9, owner=ADA)
        ids = sorted((commits[0].transaction.id, commits[3].transaction.id), reverse=True)
        assert [each.id for each in found] == ids
    assert count(path, "txn_owners") == 3


@pytest.mark.parametrize("state", [None, State.OPEN, State.ABORTED, State.COMMITTED])
async def test_a_page_of_an_owner_does_not_read_the_committed_rows_of_others(
    path: Path, state: State | None
) -> None:
    async with opened(path) as store:
        await begin(store)
    with direct(path) as db:
        (first,) = db.execute("SELECT id FROM txns").fetchone()

        def add(owner: str, start: int, number: int) -> None:
            for id_ in range(first + start, first + start + number):
                db.execute(INSERT, (id_,))
                db.execute("UPDATE txns SET state = 'committed' WHERE id = ?", (id_,))
                db.execute("INSERT INTO txn_owners VALUES (?, ?)", (id_, owner))

        db.execute("BEGIN")
        add(ADA, 1, 20)
        add(BOB, 100, 20)
        db.execute("COMMIT")

        def cost(owner: str) -> int:
            return steps_of(path, lambda db: rows.select(db, state, None, 10, None, owner))

        before = [cost(owner) for owner in (ADA, BOB, "sub:nobody")]
        db.execute("BEGIN")
        add(BOB, 1_000, 3_000)
        db.execute("COMMIT")
        after = [cost(owner) for owner in (ADA, BOB, "sub:nobody")]
    assert all(now <= 2 * then + 5 for then, now in zip(before, after, strict=True)), (
        before,
        after,
    )
