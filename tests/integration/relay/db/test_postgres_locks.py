"""Rows of an outbox in PostgreSQL that another transaction has locked."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from oplog_relay.db import DatabaseOutbox
from oplog_relay.db.postgres.locked_rows import LockedRows
from oplog_relay.model.bindings import Purged
from oplog_relay.model.errors import OutboxError
from tests.kits.agents.agent import DEADLINE
from tests.kits.relay.places import Kind, Place, ids_of, stamped
from tests.kits.servers.postgres import PostgresServer

A, B = uuid4(), uuid4()


@pytest.fixture
def kind(postgres: PostgresServer) -> Kind:
    return "postgres"


@contextmanager
def rows_locked(place: Place, condition: str) -> Iterator[Any]:
    """Lock rows in a transaction that ends with the context."""
    with place.connect() as other:
        other.execute(f"SELECT FROM outbox WHERE {condition} FOR UPDATE")
        yield other
        other.rollback()  # to close the connection would be enough, but some time later


async def locked(place: Place) -> None:
    """Wait until a session waits for the lock of another one."""
    async with asyncio.timeout(DEADLINE):
        while not place.waiting():
            await asyncio.sleep(0.005)


async def test_a_mark_waits_for_a_row_that_another_relay_marks_and_takes_it(
    place: Place, outbox: DatabaseOutbox, patient: None
) -> None:
    place.insert(*"abc")
    with place.connect() as other:
        other.execute("UPDATE outbox SET leader_id = %s WHERE id <= 2", [stamped(B)])
        marking = asyncio.create_task(outbox.mark(A, 2))
        await locked(place)
        other.commit()
        assert ids_of(await marking) == [1, 2]
    assert place.leaders() == [(1, stamped(A)), (2, stamped(A)), (3, None)]


async def test_a_mark_waits_for_a_row_that_another_relay_purges_and_takes_the_next(
    place: Place, outbox: DatabaseOutbox, patient: None
) -> None:
    place.insert(*"abc")
    with place.connect() as other:
        other.execute("DELETE FROM outbox WHERE id = 1")
        marking = asyncio.create_task(outbox.mark(A, 2))
        await locked(place)
        other.commit()
        assert ids_of(await marking) == [2, 3]


async def test_a_row_that_its_own_leader_has_stamped_meanwhile_is_not_marked_twice(
    place: Place, outbox: DatabaseOutbox, patient: None
) -> None:
    place.insert(*"abc")
    with place.connect() as other:
        other.execute("UPDATE outbox SET leader_id = %s WHERE id = 1", [stamped(A)])
        marking = asyncio.create_task(outbox.mark(A, 2))
        await locked(place)
        other.commit()
        assert ids_of(await marking) == [2, 3]


async def test_a_mark_leaves_a_locked_row_and_the_rows_of_its_key_behind_it(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"abcabcabc")
    with rows_locked(place, "id = 4") as other:
        assert ids_of(await outbox.mark(A, 9, 1)) == [1, 2, 3, 5, 6, 8, 9]
        assert place.leaders()[3] == (4, None)
        assert place.leaders()[6] == (7, None)
        assert await outbox.mark(A, 9, 2) == []
        other.rollback()
    rows = await marked(outbox, 2)
    assert ids_of(rows) == [4, 7]
    assert {row.mark for row in rows} == {3}


async def marked(outbox: DatabaseOutbox, rows: int) -> Any:
    """Mark until there are rows: keys that were locked are passed over for a second."""
    async with asyncio.timeout(DEADLINE):
        while not (found := await outbox.mark(A, rows, 3)):
            await asyncio.sleep(0.05)
        return found


async def test_a_long_queue_behind_a_locked_row_stops_no_other_key(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"a" * 50, "b", *"c" * 50, "d", "e")
    with rows_locked(place, "id IN (1, 52)"):
        found = [id for number in range(9) for id in ids_of(await outbox.mark(A, 10, number))]
        assert found == [51, 102, 103]
        place.insert("f", "a")
        assert ids_of(await outbox.mark(A, 10, 9)) == [104]


async def test_a_mark_of_a_few_rows_takes_those_before_a_locked_one(
    place: Place, outbox: DatabaseOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplog_relay.db.postgres.locked_rows._LOOK_AGAIN_S", 3600.0)
    place.insert(*"aaabbb")
    with rows_locked(place, "id = 2"):
        assert ids_of(await outbox.mark(A, 2, 1)) == [1]
        assert ids_of(await outbox.mark(A, 2, 2)) == [4, 5]
        assert ids_of(await outbox.mark(A, 2, 3, ["a"])) == [6]


async def test_all_rows_of_a_big_transaction_are_left_alone(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*(str(number % 700) for number in range(2000)))
    with rows_locked(place, "id <= 2000") as other:
        place.insert("0", "new")
        assert ids_of(await outbox.mark(A, 100, 1)) == [2002]
        other.execute("DELETE FROM outbox WHERE id <= 2000")
        assert await outbox.mark(A, 100, 2) == []
        other.commit()
    assert ids_of(await marked(outbox, 9)) == [2001]


async def test_marks_wait_for_locks_again_once_none_is_left(
    place: Place, outbox: DatabaseOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.insert(*"ab")
    with rows_locked(place, "id = 1"):
        assert ids_of(await outbox.mark(A, 9, 1)) == [2]
    assert ids_of(await marked(outbox, 9)) == [1]
    outcomes = []
    mark = LockedRows.mark

    async def note(*arguments: Any) -> Any:
        outcomes.append(arguments)
        return await mark(*arguments)

    monkeypatch.setattr("oplog_relay.db.postgres.locked_rows.LockedRows.mark", note)
    place.insert("c")
    assert ids_of(await outbox.mark(A, 9, 4)) == [3]
    assert outcomes == []


async def test_a_purge_leaves_locked_rows_and_names_them(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"abcd")
    rows = await outbox.mark(A, 9, 1)
    place.run("UPDATE outbox SET leader_id = ? WHERE id = 3", stamped(B))
    with rows_locked(place, "id = 2"):
        assert await outbox.purge(A, rows) == Purged((2,), 0, 1)
        assert place.ids() == [2, 3]
        began = time.monotonic()
        assert await outbox.purge(A, rows) == Purged((2,), 0, 1)
        assert time.monotonic() - began < 60.0
    assert await outbox.purge(A, rows[:2]) == Purged()
    assert place.ids() == [3]


async def test_a_purge_tells_rows_that_a_trigger_keeps_from_locked_ones(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.run(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN CASE WHEN OLD.key = 'b' THEN NULL ELSE OLD END; END $$"
    )
    place.run("CREATE TRIGGER keep BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION keep()")
    place.insert(*"abc")
    rows = await outbox.mark(A, 9, 1)
    with rows_locked(place, "id = 3"):
        assert await outbox.purge(A, rows) == Purged((3,), 1)
    assert await outbox.purge(A, rows) == Purged((), 1)
    assert place.ids() == [2]


async def test_a_reset_leaves_locked_rows_only_if_it_is_of_all_rows(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"abc")
    rows = await outbox.mark(A, 9, 1)
    with rows_locked(place, "id = 2"):
        for call in (outbox.reset(A, rows=rows), outbox.reset(A, key="b")):
            with pytest.raises(OutboxError, match="lock timeout"):
                await call
        assert await outbox.reset(A) == 2
    assert await outbox.reset(A) == 1


async def test_a_table_that_is_locked_as_a_whole_is_waited_for(
    place: Place, outbox: DatabaseOutbox
) -> None:
    """As by ALTER TABLE, TRUNCATE or VACUUM FULL."""
    place.insert(*"abc")
    first = await outbox.mark(A, 1, 1)
    with place.connect() as other:
        other.execute("LOCK TABLE outbox")
        marking = asyncio.create_task(outbox.mark(A, 9, 2))
        purging = asyncio.create_task(outbox.purge(A, first))
        done, _ = await asyncio.wait({marking, purging}, timeout=1.0)
        assert not done
        other.rollback()
    assert ids_of(await marking) == [2, 3]
    assert await purging == Purged()
