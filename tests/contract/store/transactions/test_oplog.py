"""Operations of transactions in every store: in the oplog at the commit, all of them or none."""

import json

import pytest

from oplogd.model.event_id import Mark, format_id
from oplogd.model.operation import Operation
from oplogd.model.transaction import Marker
from oplogd.store import Store
from oplogd.store.topics import EntryKind
from tests.kits.models.operations import numbered, operation
from tests.kits.store.kits import Kit, Kits, known, log_of, states_of
from tests.kits.store.messages import NAME
from tests.kits.store.transacting import (
    EVERY,
    StoreHandle,
    begin,
    committed_with,
    decisions_in,
    oplog_record,
    payloads_committed,
    record,
    write,
)


def with_place(made: Operation, txn: int, lsn: int, of: int) -> tuple[str, str]:
    """Return the event and data of an operation in the log."""
    return made.event, f'{made.data.decode()[:-1]},"txn":"{txn}","lsn":{lsn},"of":{of}}}'


async def oplog_of(store: StoreHandle) -> list[tuple[str, str]]:
    return [(entry.event, entry.data) for entry in await store.read(0, 1000)]


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_operations_enter_the_oplog_at_the_commit_by_lsn_with_their_place(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    plain = numbered(2)
    made = [operation("update", id_="x"), operation("delete", id_="y"), operation(id_="z")]
    await txn_store.append(plain[:1])
    begun = await begin(txn_store)
    await write(txn_store, begun, oplog_record(4, made[2]), record(1, topic, "m"))
    await write(txn_store, begun, oplog_record(0, made[0]), record(3, topic, "n"))
    written = await write(txn_store, begun, oplog_record(2, made[1]))
    assert (written.logs, written.records) == ((0, topic.log), 5)
    await txn_store.append(plain[1:])
    assert len(await oplog_of(txn_store)) == 2
    commit = await txn_store.transactions.commit(begun.id, 5)
    assert json.loads((await txn_store.read(2, 1))[0].data)["of"] == 3
    assert await oplog_of(txn_store) == [
        *[(each.event, each.data.decode()) for each in plain],
        *[with_place(each, begun.id, 2 * k, 3) for k, each in enumerate(made)],
    ]
    entries = await txn_store.read(2, 10)
    ids = list(commit.record_ids())
    assert ids[0::2] == [format_id(Mark(each.offset, each.ms)) for each in entries]
    assert [len(each or "") for each in ids] == [24, 40, 24, 40, 24]
    assert await decisions_in(txn_store, topic) == [(EntryKind.COMMIT, Marker(str(begun.id), 2, 3))]
    other = await txn_kit.open()
    again = await other.transactions.commit(begun.id, 5)
    assert (list(again.record_ids()), again.runs) == (ids, commit.runs)
    assert len(await oplog_of(txn_store)) == 5


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_operations_past_the_number_of_the_commit_and_of_aborts_never_enter_the_oplog(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    made = numbered(4)
    aborted, late, begun = [await begin(txn_store, timeout_ms=1000) for _ in range(3)]
    for each in (aborted, late, begun):
        await write(txn_store, each, *[oplog_record(lsn, each) for lsn, each in enumerate(made)])
    await txn_store.transactions.abort(aborted.id)
    await txn_store.transactions.commit(begun.id, 2)
    txn_kit.clock.ms += 2000
    assert await txn_store.transactions.keep() == 1
    expected = [with_place(made[lsn], begun.id, lsn, 2) for lsn in range(2)]
    assert await oplog_of(txn_store) == expected
    await txn_store.append(made[3:])
    assert (await oplog_of(txn_store))[2:] == [(made[3].event, made[3].data.decode())]


async def test_states_hold_the_operations_of_a_commit_without_their_place(
    kits: Kits, kit: Kit, store: Store
) -> None:
    await store.append(numbered(2))
    made = [operation("update", id_="1"), operation("delete", id_="2"), *numbered(2, first=3)]
    topic = await store.topics.create(NAME, None)
    written = [oplog_record(lsn, each) for lsn, each in enumerate(made)]
    await committed_with(store, *written, record(4, topic, "m"))
    checkpoint = await store.checkpoint()
    assert checkpoint.offset == 6
    entries = await log_of(store)
    assert checkpoint == Mark(6, entries[-1].ms)
    assert known(await states_of(store, upto=checkpoint.offset)) == {
        made[0].key: (False, made[0].data.decode()),
        made[1].key: (True, made[1].data.decode()),
        made[2].key: (False, made[2].data.decode()),
        made[3].key: (False, made[3].data.decode()),
    }
    assert (await store.stats()).states == 4
    # The next operation on an object replaces the state as ever, and its place in the log counts.
    newest = operation("update", id_="3")
    await store.append([newest])
    upto = (await store.checkpoint()).offset
    states = known(await states_of(store, upto=upto))
    assert states[newest.key] == (False, newest.data.decode())
    assert await payloads_committed(store, topic) == ["m"]


async def test_followers_and_seeks_take_the_operations_of_a_commit_like_any(
    kits: Kits, kit: Kit, store: Store
) -> None:
    await store.append(numbered(1))
    kit.clock.ms += 10
    await committed_with(store, *[oplog_record(lsn, each) for lsn, each in enumerate(numbered(3))])
    entries = await log_of(store)
    assert [entry.offset for entry in entries] == [1, 2, 3, 4]
    assert await store.follow(0, 10, 5) == entries
    assert await store.follow(2, 10, 5) == entries[2:]
    assert (await store.seek(entries[-1].ms)).offset == 4
    assert (await store.locate(3)).at_ms == entries[2].ms
    assert (await store.locate()).head == Mark(4, entries[-1].ms)
    stats = await store.stats()
    assert (stats.operations, stats.newest) == (4, Mark(4, entries[-1].ms))


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_two_commits_of_operations_do_not_mix(txn_kit: Kit, txn_store: StoreHandle) -> None:
    """The operations of each follow each other by lsn; the one that commits first comes first."""
    other = await txn_kit.open()
    one, two = await begin(txn_store), await begin(other)
    made = numbered(6)
    await write(txn_store, one, *[oplog_record(lsn, made[lsn]) for lsn in range(3)])
    await write(other, two, *[oplog_record(lsn, made[3 + lsn]) for lsn in range(3)])
    last = await other.transactions.commit(two.id, 3)
    first = await txn_store.transactions.commit(one.id, 3)
    expected = [with_place(made[3 + lsn], two.id, lsn, 3) for lsn in range(3)]
    expected += [with_place(made[lsn], one.id, lsn, 3) for lsn in range(3)]
    assert await oplog_of(txn_store) == expected
    marks = [Mark(entry.offset, entry.ms) for entry in await txn_store.read(0, 10)]
    assert [*last.record_ids(), *first.record_ids()] == [format_id(each) for each in marks]
