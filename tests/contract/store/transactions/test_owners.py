"""The owners of transactions in every store: kept, listed in pages, and of keys."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager

import pytest

from oplogd.errors import OnceKeyNotFoundError, TransactionConflictError
from oplogd.model.once import OnceNumber
from oplogd.model.transaction import Reason, State
from oplogd.store.transactions import Commit, Transaction
from tests.kits.models.operations import operation
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME
from tests.kits.store.transacting import (
    EVERY,
    LIMITS,
    StoreHandle,
    group_log,
    new_transaction,
    oplog_record,
    record,
    records,
)

ADA, BOB = "sub:ada", "user:bob"
# The longest one.
LONG = "sub:" + 74 * "\U0001f600"
DAY_MS = 86_400_000
KEY = "import-7"


def refused() -> AbstractContextManager[object]:
    return pytest.raises(
        TransactionConflictError, match=re.escape(f"the key {KEY} belongs to another client") + "$"
    )


async def begin_as(
    store: StoreHandle, owner: str | None, group: str = "default", once: OnceNumber | None = None
) -> Transaction:
    new = await new_transaction(store, group)
    return await store.transactions.begin(new._replace(owner=owner, once=once))


async def whole_as(
    store: StoreHandle, owner: str | None, once: OnceNumber | None = None, count: int = 0
) -> Commit:
    """Commit a whole transaction with operations."""
    new = (await new_transaction(store))._replace(owner=owner, once=once)
    given = [oplog_record(lsn, operation(id_=str(lsn))) for lsn in range(count or 1)]
    return await store.transactions.commit_whole(new, given, LIMITS)


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
@pytest.mark.parametrize("owner", [None, ADA, LONG])
async def test_each_answer_has_the_owner_of_the_begin(
    txn_kit: Kit, txn_store: StoreHandle, owner: str | None
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    other = await txn_kit.open()
    begun = await begin_as(txn_store, owner)
    aborted = await begin_as(other, owner)
    timed_out = await txn_store.transactions.begin(
        (await new_transaction(txn_store, timeout_ms=1))._replace(owner=owner)
    )
    written = await txn_store.transactions.write(begun.id, records(topic, "a"), LIMITS)
    commit = await other.transactions.commit(begun.id, 1)
    txn_kit.clock.ms += 2
    found = [
        begun,
        written,
        commit.transaction,
        await txn_store.transactions.abort(aborted.id),
        await other.transactions.find(timed_out.id),
        (await whole_as(txn_store, owner)).transaction,
    ]
    assert [each.owner for each in found] == [owner] * len(found)
    for store in (await txn_kit.open(), txn_store):
        for each in found[2:]:
            assert await store.transactions.find(each.id) == each
        assert {each.owner for each in await store.transactions.select(None, None, 9)} == {owner}


@pytest.mark.parametrize("count", [1, 6_000])
@pytest.mark.parametrize("txn_kits", ["memory", "sqlite", "mongo-plain"], indirect=True)
async def test_a_whole_one_keeps_its_owner(txn_store: StoreHandle, count: int) -> None:
    """One with many records takes statements of its own."""
    commit = await whole_as(txn_store, ADA, count=count)
    assert commit.transaction.owner == ADA
    assert await txn_store.transactions.find(commit.transaction.id) == commit.transaction


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_only_the_owner_of_a_key_begins_and_commits_with_it(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    rivals = [await begin_as(other, BOB, once=OnceNumber(KEY, number)) for number in (2, 3, 4)]
    once = OnceNumber(KEY, 3)
    first = await whole_as(txn_store, ADA, once)
    for store in (other, txn_store, other):
        for each in rivals:
            with refused():
                await store.transactions.commit(each.id, 0)
        for number in (2, 3, 4):
            with refused():
                await begin_as(store, BOB, once=OnceNumber(KEY, number))
            with refused():
                await whole_as(store, BOB, OnceNumber(KEY, number))
    for each in rivals:
        assert await other.transactions.find(each.id) == each, "it stays open"
    opened = {each.id for each in await other.transactions.select(State.OPEN, None, 100)}
    assert opened == {each.id for each in rivals}
    assert await other.transactions.select(State.COMMITTED, None, 100) == [first.transaction]
    assert len(await other.read(0, 100)) == 1
    assert await begin_as(other, ADA, once=once) == first.transaction
    assert await whole_as(other, ADA, once) == first
    assert await other.transactions.commit(first.transaction.id, 1) == first
    second = await whole_as(other, ADA, OnceNumber(KEY, 4))
    assert await txn_store.transactions.newest(KEY) == second.transaction


@pytest.mark.parametrize("count", [1, 6_000])
@pytest.mark.parametrize("txn_kits", ["memory", "sqlite", "mongo-plain"], indirect=True)
async def test_a_refused_whole_one_stores_nothing(txn_store: StoreHandle, count: int) -> None:
    first = await whole_as(txn_store, ADA, OnceNumber(KEY, 1))
    for number in (1, 2):
        with refused():
            await whole_as(txn_store, BOB, OnceNumber(KEY, number), count)
    assert len(await txn_store.read(0, 100)) == 1
    assert await txn_store.transactions.select(None, None, 100) == [first.transaction]


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_a_transaction_without_an_owner_takes_a_key_over(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    mine = [await begin_as(other, ADA, once=OnceNumber(KEY, number)) for number in (2, 3)]
    first = await whole_as(txn_store, ADA, OnceNumber(KEY, 1))
    assert await whole_as(other, None, OnceNumber(KEY, 1)) == first
    assert await begin_as(other, None, once=OnceNumber(KEY, 1)) == first.transaction
    taken = await whole_as(other, None, OnceNumber(KEY, 2))
    assert taken.transaction.owner is None
    for each in mine:
        with refused():
            await txn_store.transactions.commit(each.id, 0)
    for number in (1, 2, 3):
        with refused():
            await begin_as(txn_store, ADA, once=OnceNumber(KEY, number))
        with refused():
            await whole_as(txn_store, ADA, OnceNumber(KEY, number))
    # It committed before.
    assert await txn_store.transactions.commit(first.transaction.id, 1) == first
    assert await other.transactions.newest(KEY) == taken.transaction
    assert await whole_as(txn_store, None, OnceNumber(KEY, 2)) == taken
    await other.transactions.forget_key(KEY)
    again = await whole_as(txn_store, ADA, OnceNumber(KEY, 1))
    assert again.transaction.owner == ADA


async def test_a_number_aborted_for_another_owner_is_not_answered_with_its_commit(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    mine = await begin_as(txn_store, ADA, once=OnceNumber(KEY, 1))
    first = await whole_as(other, ADA, OnceNumber(KEY, 1))
    assert await txn_store.transactions.commit(mine.id, 0) == first
    assert (await other.transactions.find(mine.id)).reason is Reason.ONCE
    await other.transactions.forget_key(KEY)
    await whole_as(other, BOB, OnceNumber(KEY, 1))
    for store in (txn_store, other):
        with refused():
            await store.transactions.commit(mine.id, 0)


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
@pytest.mark.parametrize("is_whole", [True, False])
async def test_of_two_owners_that_commit_with_one_key_at_once_one_gets_it(
    txn_kit: Kit, txn_store: StoreHandle, is_whole: bool
) -> None:
    stores = {ADA: txn_store, BOB: await txn_kit.open()}
    await group_log(txn_store)
    for round_ in range(12):
        # A number of the other one may be larger.
        numbers = {ADA: 1, BOB: round_ % 3}
        given = {each: OnceNumber(f"key-{round_}", number) for each, number in numbers.items()}
        if is_whole:
            work = [whole_as(store, each, given[each]) for each, store in stores.items()]
        else:
            begun = {
                each: await begin_as(store, each, once=given[each])
                for each, store in stores.items()
            }
            work = [store.transactions.commit(begun[each].id, 0) for each, store in stores.items()]
        results = await asyncio.gather(*work[:: 1 - 2 * (round_ % 2)], return_exceptions=True)
        (won,) = [each for each in results if isinstance(each, Commit)]
        (lost,) = [each for each in results if not isinstance(each, Commit)]
        assert isinstance(lost, TransactionConflictError)
        assert str(lost) == f"the key key-{round_} belongs to another client"
        assert await txn_store.transactions.newest(f"key-{round_}") == won.transaction
        assert won.transaction.once == given[won.transaction.owner or ""]
    assert len(await txn_store.transactions.select(State.COMMITTED, None, 100)) == 12
    assert len(await txn_store.read(0, 100)) == (12 if is_whole else 0)


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_an_owner_gets_full_pages_of_its_own(
    txn_kit: Kit, txn_store: StoreHandle, limit: int
) -> None:
    begun = []
    for number in range(12):
        owner = (ADA, BOB, None)[number % 3]
        begun.append(await begin_as(txn_store, owner, "gh"[number % 2]))
        txn_kit.clock.ms += 1
        if number % 4 == 2:
            await txn_store.transactions.abort(begun[-1].id)
        elif number % 4 == 3:
            await txn_store.transactions.commit(begun[-1].id, 0)

    async def pages(owner: str | None, state: State | None, group: str | None) -> Sequence[int]:
        """Read to the end. Only the last page has less than the limit."""
        found: list[int] = []
        page_of = limit
        while page_of == limit:
            page = await txn_store.transactions.select(
                state, group, limit, found[-1] if found else None, owner
            )
            found += [each.id for each in page]
            page_of = len(page)
        return found

    now = [await txn_store.transactions.find(each.id) for each in reversed(begun)]
    for owner in (ADA, BOB, "sub:nobody", None):
        for state in (None, State.OPEN, State.ABORTED, State.COMMITTED):
            for group in (None, "g"):
                expected = [
                    each.id
                    for each in now
                    if owner in (None, each.owner)
                    and state in (None, each.state)
                    and group in (None, each.group)
                ]
                assert await pages(owner, state, group) == expected, (owner, state, group)


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_an_owner_gets_full_pages_of_its_own_keys(
    txn_kit: Kit, txn_store: StoreHandle, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.mongo.transactions.claims._OWNED_STEP", 2)
    for number, key in enumerate("fbdaecg"):
        for each in (1, 2):
            await whole_as(txn_store, (ADA, BOB, None)[number % 3], OnceNumber(key, each))
    other = await txn_kit.open()
    for owner, expected in ((ADA, "afg"), (BOB, "be"), ("sub:nobody", ""), (None, "abcdefg")):
        found: list[str] = []
        page_of = limit
        while page_of == limit:
            page = await other.transactions.keys(found[-1] if found else "", limit, owner)
            found += [each.once.key for each in page if each.once]
            page_of = len(page)
        assert "".join(found) == expected, owner


async def test_only_the_owner_of_the_newest_transaction_forgets_a_key(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    mine, theirs = OnceNumber("mine", 1), OnceNumber("theirs", 1)
    await whole_as(txn_store, ADA, mine)
    await whole_as(txn_store, None, theirs)
    for key, owner in ((mine.key, BOB), (theirs.key, BOB), ("no-key", BOB), ("no-key", None)):
        with pytest.raises(OnceKeyNotFoundError) as refused:
            await other.transactions.forget_key(key, owner)
        assert str(refused.value) == f"no transaction has committed with the key {key}"
    assert [each.owner for each in await other.transactions.keys("", 9)] == [ADA, None]
    await other.transactions.forget_key(mine.key, ADA)
    await other.transactions.forget_key(theirs.key)
    assert await txn_store.transactions.keys("", 9) == []
    with pytest.raises(OnceKeyNotFoundError, match="with the key mine"):
        await txn_store.transactions.forget_key(mine.key, ADA)


async def test_the_owner_of_a_forgotten_transaction_is_forgotten(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    new = (await new_transaction(txn_store))._replace(owner=ADA)
    await txn_store.transactions.commit_whole(new, [record(0, topic, "a")], LIMITS)
    txn_kit.clock.ms += 3 * DAY_MS
    await txn_store.transactions.keep()
    assert await txn_store.transactions.select(None, None, 9, owner=ADA) == []
