"""Transactions of a closed client, and blocks that last longer than their transaction."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from oplogc.topics import AsyncTopics, Topics, TransactionError
from tests.integration.clients.scripted_transactions import TXN, TransactionServer, id_of, refused
from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.contract.wire import wait_until


def is_closed(topics: Topics | AsyncTopics) -> bool:
    try:
        topics.transaction()
    except ValueError:
        return True
    return False


def test_closing_the_client_while_a_record_is_on_its_way_is_told_as_the_reason(
    topics_of: TopicsOf,
) -> None:
    with TransactionServer() as server:
        topics = topics_of(server.url)
        server.hold("records")
        futures = []

        def close() -> None:
            with topics.transaction() as txn:
                futures.append(txn.write("t", "a"))
                assert wait_until(lambda: "records" in server.calls)
                topics.close()

        with pytest.raises(TransactionError) as failed:
            close()
        assert str(failed.value) == f"transaction {TXN} is not committed: its client was closed"
        assert futures[0].exception(DEADLINE) == failed.value
        server.release()
    assert server.calls == ["txns", "records", "abort"]


def test_closing_the_client_waits_for_a_commit_on_its_way_in_another_thread() -> None:
    with TransactionServer() as server, ThreadPoolExecutor(2) as pool:
        topics = Topics(server.url)
        server.hold("commit")
        with topics.transaction() as txn:
            future = txn.write("t", "a")
            committing = pool.submit(txn.commit)
            assert wait_until(lambda: "commit" in server.calls)
            closing = pool.submit(topics.close)
            assert wait_until(lambda: is_closed(topics))
            server.release()
            assert committing.result(DEADLINE).records == (id_of(0),)
            closing.result(DEADLINE)
        assert future.result(DEADLINE) == id_of(0)
    assert server.calls == ["txns", "records", "commit"]


async def test_closing_the_client_waits_for_a_commit_on_its_way_in_another_task() -> None:
    with TransactionServer() as server:
        topics = AsyncTopics(server.url)
        server.hold("commit")
        async with topics.transaction() as txn:
            future = await txn.write("t", "a")
            committing = asyncio.create_task(txn.commit())
            assert await asyncio.to_thread(wait_until, lambda: "commit" in server.calls)
            closing = asyncio.create_task(topics.aclose())
            while not is_closed(topics):
                await asyncio.sleep(0)
            server.release()
            assert (await committing).records == (id_of(0),)
            await closing
        assert await future == id_of(0)
    assert server.calls == ["txns", "records", "commit"]


def test_a_commit_that_outlasts_the_closing_of_the_client_is_unknown() -> None:
    with TransactionServer() as server, ThreadPoolExecutor(1) as pool:
        topics = Topics(server.url)
        server.hold("commit")
        with topics.transaction() as txn:
            future = txn.write("t", "a")
            committing = pool.submit(txn.commit)
            assert wait_until(lambda: "commit" in server.calls)
            topics.close(0.0)
            failed = committing.exception(DEADLINE)
        assert f"transaction {TXN} may be committed" in str(failed)
        assert future.exception(DEADLINE) == failed
        server.release()


@pytest.mark.parametrize("is_used", [False, True])
def test_a_transaction_of_a_closed_client_does_not_begin(
    topics_of: TopicsOf, is_used: bool
) -> None:
    with TransactionServer() as server:
        topics = topics_of(server.url)
        txn = topics.transaction()
        if is_used:
            with topics.transaction():
                pass
        topics.close()
        with pytest.raises(ValueError, match="closed"), txn:
            raise AssertionError("the block was entered")
    assert server.calls == (["txns", "commit"] if is_used else [])


@pytest.mark.parametrize("has_record", [False, True])
def test_a_block_that_outlasts_its_transaction_knows_that_nothing_is_committed(
    topics_of: TopicsOf, monkeypatch: pytest.MonkeyPatch, has_record: bool
) -> None:
    away = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + away)
    for module in ("calls.agents", "transactions.transaction"):
        monkeypatch.setattr(f"oplogc.topics.{module}.time", clock)
    with (
        TransactionServer(commit=[refused("409 Conflict", "timed out")]) as server,
        topics_of(server.url) as topics,
    ):

        def outlast() -> None:
            nonlocal away
            with topics.transaction(timeout=60) as txn:
                away = 3600.0
                if has_record:
                    txn.write("t", "a")

        told = "its time of 60 s is over" if has_record else "timed out"
        with pytest.raises(TransactionError, match=told):
            outlast()
    assert server.calls == ["txns", *([] if has_record else ["commit"]), "abort"]


def test_closing_the_client_aborts_what_is_open(topics_of: TopicsOf) -> None:
    with TransactionServer() as server:
        topics = topics_of(server.url)
        with pytest.raises(TransactionError, match="its client was closed"), topics.transaction():
            topics.close()
    assert server.calls == ["txns", "abort"]


def test_a_block_in_a_thread_that_goes_on_after_its_time_fails_for_it_and_aborts() -> None:
    def go_on(topics: Topics) -> None:
        with topics.transaction(timeout=0.2) as txn:
            assert isinstance(txn.write("t", "a").exception(DEADLINE), TransactionError)
            txn.write("t", "b")

    with TransactionServer() as server, Topics(server.url) as topics:
        with pytest.raises(TransactionError, match=r"its time of 0\.2 s is over"):
            go_on(topics)
        assert server.calls == ["txns", "records", "abort"]
