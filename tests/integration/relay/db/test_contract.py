"""What every database does with an outbox."""

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog_relay.db import DatabaseOutbox
from oplog_relay.model.bindings import Backlog, Purged
from oplog_relay.model.errors import ConfigError, OutboxError
from oplog_relay.model.row import Row
from oplog_relay.model.settings import Table
from oplog_relay.outbox import OutboxWriter
from tests.kits.models.properties import examples
from tests.kits.relay.places import Place, ids_of, stamped

A, B = uuid4(), uuid4()


async def test_mark_stamps_the_lowest_ids_of_nobody_or_another_leader_and_sorts_them(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"abcde")
    await outbox.check()
    assert ids_of(await outbox.mark(A, 2)) == [1, 2]
    assert ids_of(await outbox.mark(A, 2)) == [3, 4]
    assert place.leaders() == [*((each, stamped(A)) for each in (1, 2, 3, 4)), (5, None)]
    assert ids_of(await outbox.mark(B, 3)) == [1, 2, 3]
    assert ids_of(await outbox.mark(A, 10)) == [1, 2, 3, 5]
    assert ids_of(await outbox.mark(A, 10)) == []
    assert place.leaders() == [(each, stamped(A)) for each in (1, 2, 3, 4, 5)]


async def test_purge_deletes_rows_with_the_stamp_of_their_mark_and_tells_of_others(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"abcd")
    first = await outbox.mark(A, 3, 1)
    taken = await outbox.mark(B, 1, 1)
    assert await outbox.purge(A, []) == Purged()
    assert await outbox.purge(A, first) == Purged(changed=1)
    assert place.ids() == [1, 4]
    assert await outbox.purge(A, first[1:]) == Purged()
    assert await outbox.purge(B, taken) == Purged()
    assert await outbox.purge(B, taken) == Purged()
    assert place.ids() == [4]


async def test_a_mark_whose_number_is_too_large_stamps_nothing(
    place: Place, outbox: DatabaseOutbox
) -> None:
    """Its stamps would be those of another leader, and the rows be marked again and again."""
    place.insert(*"ab")
    with pytest.raises(OutboxError, match=r"^mark: 281474976710656 is not from 0"):
        await outbox.mark(A, 2, 2**48)
    assert place.leaders() == [(1, None), (2, None)]
    assert ids_of(await outbox.mark(A, 2, 2**48 - 1)) == [1, 2]
    assert await outbox.reset(A) == 2


@pytest.mark.parametrize("is_marked", [False, True])
async def test_purge_leaves_a_new_row_with_the_id_of_an_old_one(
    is_marked: bool, place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"abc")
    old = await outbox.mark(A, 3, 1)
    place.restart()
    place.insert(*"xyz")
    new = await outbox.mark(A, 2, 2) if is_marked else []
    assert await outbox.purge(A, old) == Purged(changed=3)
    assert await outbox.reset(A, rows=old) == 0
    assert place.ids() == [1, 2, 3]
    assert [(row.id, row.key, row.mark) for row in new] == [(1, "x", 2), (2, "y", 2)][: len(new)]
    assert await outbox.reset(A, rows=new) == len(new)


async def test_mark_passes_over_rows_of_keys(place: Place, outbox: DatabaseOutbox) -> None:
    place.insert("a", "b", "ä%s", "a", "c", "b")
    assert ids_of(await outbox.mark(A, 2, 1, ["a", "ä%s", "nothing"])) == [2, 5]
    assert ids_of(await outbox.mark(A, 9, 2, [str(n) for n in range(40_000)])) == [1, 3, 4, 6]
    assert await outbox.mark(A, 9, 3, ["a"]) == []


async def test_ids_of_purged_rows_are_not_used_again(place: Place, outbox: DatabaseOutbox) -> None:
    place.insert("a", "b")
    await outbox.purge(A, await outbox.mark(A, 2))
    place.insert("c")
    assert place.ids() == [3]


async def test_reset_concerns_rows_of_one_leader_only(place: Place, outbox: DatabaseOutbox) -> None:
    place.insert(*"aabbc")
    rows = await outbox.mark(A, 5)
    await outbox.mark(B, 1)  # the first row
    assert await outbox.reset(A, rows=[]) == 0
    assert await outbox.reset(A, rows=rows[:2]) == 1
    assert await outbox.reset(A, key="b") == 2
    assert [leader for _, leader in place.leaders()] == [stamped(B), None, None, None, stamped(A)]
    assert await outbox.reset(A, key="a") == 0
    assert await outbox.reset(A) == 1
    assert await outbox.reset(A) == 0
    assert [leader for _, leader in place.leaders()] == [stamped(B), None, None, None, None]


async def test_a_row_comes_back_as_it_was_inserted(place: Place, outbox: DatabaseOutbox) -> None:
    headers = [("", ""), ("a", '"b"'), ("a", "{,}\\"), ("ü", "\U0001f600\u2028'NULL'")]
    before = datetime.now(UTC)
    place.insert("k%s:?", topic="n/t", value='{"é": "\U0001f600"}', headers=headers)
    place.insert("k", value=None)
    place.insert("k", value="")
    first, second, third = await outbox.mark(A, 10)
    assert first == Row(1, first.create_time, "n/t", "k%s:?", '{"é": "\U0001f600"}', tuple(headers))
    assert second == Row(2, second.create_time, "topic", "k", None)
    assert third.value == ""
    assert abs((first.create_time - before).total_seconds()) < 60
    assert first.create_time.tzinfo is UTC


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(
    key=_TEXT.filter(bool),
    value=st.none() | _TEXT,
    headers=st.lists(st.tuples(_TEXT, _TEXT), max_size=3),
)
@examples(0.15)
def test_any_text_travels_unchanged(
    key: str, value: str | None, headers: list[tuple[str, str]], place: Place
) -> None:
    place.insert(key, value=value, headers=headers)

    async def take() -> list[Row]:
        outbox = place.open()
        rows = await outbox.mark(A, 10)
        await outbox.purge(A, rows)
        await outbox.dispose()
        return rows

    (row,) = asyncio.run(take())
    assert (row.key, row.value, row.headers) == (key, value, tuple(headers))


async def test_the_backlog_counts_up_to_a_limit_and_knows_the_oldest_row(
    place: Place, outbox: DatabaseOutbox
) -> None:
    assert await outbox.backlog(10) == Backlog(0, 0.0)
    place.insert(*"abc")
    ago = "now() - interval '1 hour'" if place.kind == "postgres" else "datetime('now', '-1 hour')"
    place.run(f"UPDATE outbox SET create_time = {ago} WHERE id = 1")
    await outbox.mark(A, 2)
    rows, oldest = await outbox.backlog(10)
    assert rows == 3
    assert 3590 < oldest < 3700
    assert (await outbox.backlog(2)).rows == 2
    ahead = ago.replace("-", "+", 1) if place.kind == "postgres" else "datetime('now', '+1 hour')"
    place.run(f"UPDATE outbox SET create_time = {ahead} WHERE id = 1")
    assert (await outbox.backlog(10)).oldest_seconds == 0.0


async def test_names_of_table_and_columns_are_settings(place: Place) -> None:
    place.create(
        Table(
            name="Order",
            id="row id",
            create_time="a%b",
            topic='to"pic',
            key="select",
            value="c:d",
            header_keys="{e}",
            header_values="f?g",
            leader_id="Leader",
        )
    )
    outbox = place.open()
    await outbox.check()
    with place.connect() as connection:
        OutboxWriter(place.table).message(connection, "t", key="k", value="v", headers={"x": "y"})
        connection.commit()
    (row,) = await outbox.mark(A, 10)
    assert row == Row(1, row.create_time, "t", "k", "v", (("x", "y"),))
    assert (await outbox.backlog(5)).rows == 1
    assert await outbox.reset(A, key="k") == 1
    assert await outbox.reset(A, rows=[row]) == 0
    rows = await outbox.mark(A, 10, 1, ["j"])
    assert await outbox.purge(A, rows) == Purged()
    assert place.run(f"SELECT count(*) FROM {place.outbox.table}") == [(0,)]
    await outbox.dispose()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (Table(name="missing"), r"database\.table: .*missing.*oplog-relay schema (p|s)"),
        (
            Table(key="kafka_key"),
            r"database\.columns\.key: .*'kafka_key'.*oplog-relay schema (p|s)",
        ),
    ],
)
async def test_a_missing_table_or_column_is_named_at_the_start(
    table: Table, sentence: str, place: Place
) -> None:
    place.insert("a")
    place.table = table
    outbox = place.open()
    with pytest.raises(ConfigError, match=sentence):
        await outbox.check()
    with pytest.raises(OutboxError, match=r"database\.url"):
        await outbox.mark(A, 1)
    await outbox.dispose()


async def test_two_leaders_that_mark_at_once_miss_no_row(
    place: Place, outbox: DatabaseOutbox
) -> None:
    """The last one to stamp a row has it, so both have returned it only if both stamped it."""
    other = place.open()
    place.insert(*(str(number) for number in range(400)))
    seen: dict[str, list[int]] = {stamped(A): [], stamped(B): []}

    async def lead(outbox: DatabaseOutbox, leader: str) -> None:
        for _ in range(20):
            rows = await outbox.mark(A if leader == stamped(A) else B, 20)
            assert ids_of(rows) == sorted(ids_of(rows))
            assert len(rows) == 20
            seen[leader] += ids_of(rows)

    await asyncio.gather(lead(outbox, stamped(A)), lead(other, stamped(B)))
    for id_, leader in place.leaders():
        assert leader is None or id_ in seen[leader]
    await other.dispose()


async def test_mark_and_purge_beside_inserts_return_each_row_once(
    place: Place, outbox: DatabaseOutbox
) -> None:
    found: list[int] = []

    def insert() -> None:
        for _ in range(40):
            place.insert(*"xyz")

    inserting = asyncio.ensure_future(asyncio.to_thread(insert))
    while not inserting.done() or await outbox.backlog(1) != Backlog(0, 0.0):
        rows = await outbox.mark(A, 7)
        found += ids_of(rows)
        await asyncio.gather(outbox.purge(A, rows), outbox.backlog(10))
    await inserting
    assert sorted(found) == list(range(1, 121))


async def test_a_late_mark_of_an_old_leader_is_taken_back_by_the_next_mark(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"abc")
    assert ids_of(await outbox.mark(B, 3)) == [1, 2, 3]
    assert ids_of(await outbox.mark(A, 2)) == [1, 2]  # late: A does not lead any more
    assert ids_of(await outbox.mark(B, 3)) == [1, 2]


async def test_a_cancelled_call_leaves_the_outbox_usable(
    place: Place, outbox: DatabaseOutbox, patient: None
) -> None:
    place.insert("a", "b")
    await outbox.mark(A, 1)
    with place.connect() as other:
        if place.kind == "sqlite":
            other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE outbox SET value = 'locked'")
        marking = asyncio.create_task(outbox.mark(B, 2))
        waiting = asyncio.create_task(outbox.mark(B, 2))
        await asyncio.sleep(0)
        while place.kind == "postgres" and not place.waiting():
            await asyncio.sleep(0.005)
        for each in (waiting, marking):
            each.cancel()
        await asyncio.wait({marking, waiting})
        assert marking.cancelled()
        assert waiting.cancelled()
        other.rollback()
    await outbox.reset(B)
    other_leader = uuid4()
    assert await outbox.purge(other_leader, await outbox.mark(other_leader, 2)) == Purged()
    assert place.ids() == []


async def test_a_disposed_outbox_refuses_calls(place: Place, outbox: DatabaseOutbox) -> None:
    place.insert("a")
    rows = await outbox.mark(A, 1)
    await outbox.dispose()
    await outbox.dispose()
    for call in (outbox.mark(A, 1), outbox.purge(A, rows), outbox.reset(A), outbox.backlog(1)):
        with pytest.raises(OutboxError, match="closed"):
            await call
