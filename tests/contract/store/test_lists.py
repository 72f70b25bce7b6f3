"""Lists of every store, page by page: each item once, also while others come and go."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from oplogd.model.names import TopicName
from oplogd.model.pointer import Decision
from oplogd.store import Store
from oplogd.store.pointers import FoundPointer, PointerKey
from oplogd.store.topics import Namespace
from tests.kits.store.kits import Kit
from tests.kits.store.leasing import lead
from tests.kits.store.messages import named
from tests.kits.store.pointing import publish_under, store_under
from tests.kits.store.transacting import begin

T = TypeVar("T")
K = TypeVar("K")


async def paged(
    read: Callable[[K], Awaitable[Sequence[T]]], key: Callable[[T], K], first: K, limit: int
) -> list[T]:
    """Read a list to its end, in full pages but the last."""
    found: list[T] = []
    while page := await read(key(found[-1]) if found else first):
        assert len(page) <= limit
        found += page
    return found


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_topics_and_namespaces_are_read_in_pages(lease_store: Store, limit: int) -> None:
    topics = lease_store.topics
    names = ["a/x", "a/y", "a-b/x", "a.b/x", "a/z", "aa/x", "A/x"]
    for name in names:
        await topics.create(TopicName(*name.split("/")), None)
    await topics.create(named("gone"), None)
    await topics.delete(named("gone"))
    of_a = await paged(
        lambda after: topics.in_namespace("a", after, limit), lambda t: t.name.topic, "", limit
    )
    assert [each.name.topic for each in of_a] == ["x", "y", "z"]
    assert of_a == await topics.in_namespace("a")
    found = await paged(
        lambda after: topics.namespaces(after, limit), lambda each: each.name, "", limit
    )
    counts = [("A", 1), ("a", 3), ("a-b", 1), ("a.b", 1), ("aa", 1)]
    assert found == [Namespace(*each) for each in counts]


async def test_pages_of_open_pointers_are_stable(txn_kit: Kit, lease_store: Store) -> None:
    """The oldest first, and by pointer and log if they began at once."""
    pointers = lease_store.pointers
    one, two = [await lease_store.topics.create(named(name), None) for name in "ab"]
    expected = []
    for number in (5, 3, 4):
        for pointer, topic in ((number, one), (number, two), (number + 10, one)):
            await publish_under(lease_store, topic, pointer, "a")
            expected.append(PointerKey(txn_kit.clock.ms, pointer, topic.log))
        txn_kit.clock.ms += 1000 if number == 3 else 0
    await store_under(lease_store, two, 1, "b")
    expected.append(PointerKey(txn_kit.clock.ms, 1, two.log))
    expected.sort()
    for limit in (1, 3, 100):
        found = await paged(
            lambda after: pointers.select_all(limit, after),  # noqa: B023
            lambda each: each.key,
            None,
            limit,
        )
        assert [each.key for each in found] == expected
        of_one = await paged(
            lambda after: pointers.select(one.log, limit, after),  # noqa: B023
            lambda each: PointerKey(each.begun_ms, each.pointer, one.log),
            None,
            limit,
        )
        assert of_one == [each.open for each in found if each.log == one.log]
    assert [each.open.has_entries for each in found] == [each.pointer != 1 for each in expected]
    first: list[FoundPointer] = await pointers.select_all(4)
    await pointers.decide([first[0].log], first[0].open.pointer, Decision.COMMITTED)
    txn_kit.clock.ms += 5000
    await publish_under(lease_store, one, 0, "late")
    await store_under(lease_store, two, 1, "again")  # a later time-out, the same place
    rest = await pointers.select_all(100, first[-1].key)
    late = PointerKey(txn_kit.clock.ms, 0, one.log)
    assert [each.key for each in rest] == [*expected[4:], late]


async def test_transactions_and_leases_are_read_in_pages(lease_store: Store) -> None:
    ids = [(await begin(lease_store, group=f"g{n % 2}")).id for n in range(7)]
    for name in ("b", "a", "c-d", "c"):
        await lead(lease_store, "x", name=name)
    select = lease_store.transactions.select
    for limit in (1, 3, 100):
        found = await paged(
            lambda before: select(None, None, limit, before),  # noqa: B023
            lambda each: each.id,
            None,
            limit,
        )
        assert [each.id for each in found] == sorted(ids, reverse=True)
        leases = await paged(
            lambda after: lease_store.leases.select(after, limit),  # noqa: B023
            lambda each: each.name,
            "",
            limit,
        )
        assert leases == [await lease_store.leases.find(each.name) for each in leases]
        assert [each.name for each in leases] == ["a", "b", "c", "c-d"]
    of_group = await select(None, "g1", 100, sorted(ids)[4])
    wanted = {id_ for n, id_ in enumerate(ids) if n % 2 and id_ < sorted(ids)[4]}
    assert {each.id for each in of_group} == wanted
