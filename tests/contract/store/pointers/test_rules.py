"""The rules of a topic for messages under pointers in every store."""

from collections.abc import Awaitable, Callable

import pytest

from oplogd.errors import MessageError, TransactionConflictError
from oplogd.model.pointer import DEFAULT_RULES, Decision, PointerRules
from oplogd.store.topics import EntryKind, Topic
from tests.kits.clock.virtual import START_MS
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, publish
from tests.kits.store.pointing import (
    TEPHRA,
    TIMEOUT_MS,
    committed,
    kinds_in,
    publish_stored,
    publish_under,
    store_under,
)
from tests.kits.store.transacting import StoreHandle

OFF = PointerRules(is_on=False)
ACTIONS: list[Callable[[StoreHandle, Topic, int], Awaitable[object]]] = [
    lambda store, topic, pointer: publish_under(store, topic, pointer, "a"),
    lambda store, topic, pointer: store_under(store, topic, pointer, "a"),
    lambda store, topic, pointer: publish_stored(store, topic, pointer),
]


@pytest.mark.parametrize(
    "rules", [DEFAULT_RULES, OFF, PointerRules(timeout=60), PointerRules(False, 2_592_000)]
)
async def test_rules_are_kept_and_replaced(
    txn_kit: Kit, txn_store: StoreHandle, rules: PointerRules
) -> None:
    created = await txn_store.topics.create(NAME, 5, rules)
    assert created == Topic(created.log, NAME, 5, rules)
    for store in (txn_store, await txn_kit.open()):
        assert await store.topics.find(NAME) == created
        assert await store.topics.in_namespace("ns") == [created]
        assert await store.topics.current([created.log]) == {created.log: created}
    for each in (OFF, rules, DEFAULT_RULES):
        changed = await txn_store.topics.change(NAME, 7, each)
        assert changed == await txn_store.topics.find(NAME) == Topic(created.log, NAME, 7, each)


async def test_a_topic_without_pointers_refuses_all_messages_under_them(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None, OFF)
    for store in (txn_store, await txn_kit.open()):
        for act in ACTIONS:
            with pytest.raises(TransactionConflictError, match="its property pointers is off"):
                await act(store, topic, TEPHRA)
    await publish(txn_store.topics, topic, "plain")
    assert await txn_store.pointers.select(topic.log, 10) == []
    assert await kinds_in(txn_store, topic) == [(EntryKind.MESSAGE, None)]
    await txn_store.topics.change(NAME, None)
    await publish_under(txn_store, topic, TEPHRA, "a")
    assert len(await txn_store.pointers.select(topic.log, 10)) == 1


@pytest.mark.parametrize("decision", [Decision.COMMITTED, Decision.ABORTED])
async def test_pointers_that_are_open_end_as_before(
    txn_store: StoreHandle, decision: Decision
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 1, "a")
    await store_under(txn_store, topic, 2, "b")
    mark = await publish_stored(txn_store, topic, 2)
    await store_under(txn_store, topic, 3, "c")
    await publish_under(txn_store, topic, 4, "d")
    await txn_store.topics.change(NAME, None, OFF)
    for pointer in (1, 3):
        for act in ACTIONS[:2]:
            with pytest.raises(TransactionConflictError, match="off"):
                await act(txn_store, topic, pointer)
    assert await publish_stored(txn_store, topic, 2) == mark, "a repeated request"
    with pytest.raises(TransactionConflictError, match="off"):
        await publish_stored(txn_store, topic, 3)
    assert await txn_store.pointers.rollback(topic.log, 4, None)
    for pointer in (1, 2, 3, 4):
        await txn_store.pointers.decide([topic.log], pointer, decision)
    found = await committed(txn_store, topic)
    assert (found.payloads, found.held_by) == (["a", "b"] * (decision == "committed"), None)
    with pytest.raises(TransactionConflictError, match=f"pointer 1 .* {decision}"):
        await publish_under(txn_store, topic, 1, "late")


async def test_the_time_out_of_the_topic_counts_before_the_agents(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None, PointerRules(timeout=5))
    await publish_under(txn_store, topic, 1, "a")
    await store_under(txn_store, topic, 2, "b")
    await txn_store.topics.change(NAME, None, PointerRules(timeout=60))
    await publish_under(txn_store, topic, 1, "c")
    await publish_under(txn_store, topic, 3, "d")
    await store_under(txn_store, topic, 4, "e")
    await publish_stored(txn_store, topic, 4)
    await txn_store.topics.change(NAME, None)
    await publish_under(txn_store, topic, 5, "f")
    found = {each.pointer: each for each in await txn_store.pointers.select(topic.log, 10)}
    seconds = {key: (each.expires_ms - START_MS) // 1000 for key, each in found.items()}
    assert seconds == {1: 5, 2: 5, 3: 60, 4: 60, 5: TIMEOUT_MS // 1000}
    txn_kit.clock.move(6)
    assert await txn_store.pointers.keep() == 2
    assert {each.pointer for each in await txn_store.pointers.select(topic.log, 10)} == {3, 4, 5}


async def test_a_topic_that_is_created_again_has_no_rules_of_the_old_one(
    txn_store: StoreHandle,
) -> None:
    await txn_store.topics.create(NAME, None, OFF)
    await txn_store.topics.delete(NAME)
    topic = await txn_store.topics.create(NAME, None)
    assert topic.pointers == DEFAULT_RULES
    await publish_under(txn_store, topic, TEPHRA, "a")
    await store_under(txn_store, topic, 7, "b")
    with pytest.raises(MessageError):
        await publish_under(txn_store, topic, 7, "b")
