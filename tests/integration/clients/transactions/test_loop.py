"""Transactions in one event loop, and in threads: buffers, cancelled tasks, forks, lost futures."""

import asyncio
import gc
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from oplogc.topics import (
    AsyncTopics,
    OutcomeUnknownError,
    Topics,
    TransactionError,
)
from tests.integration.clients.scripted_transactions import TransactionServer, id_of, refused
from tests.kits.agents.agent import DEADLINE
from tests.kits.contract.wire import wait_until
from tests.kits.processes import forked


async def asked(server: TransactionServer, count: int) -> None:
    """Wait until the server has this number of requests."""
    assert await asyncio.to_thread(wait_until, lambda: len(server.calls) >= count)


async def test_more_records_than_the_buffer_holds_wait_for_room_and_keep_their_order() -> None:
    with TransactionServer() as server:
        async with AsyncTopics(server.url, max_buffered=3, batch_size=2) as topics:
            async with topics.transaction() as txn:
                server.hold("records")
                writes = [asyncio.create_task(txn.write("t", str(n))) for n in range(9)]
                await asked(server, 2)
                assert [write.done() for write in writes] == [True] * 3 + [False] * 6
                server.release()
                futures = [await write for write in writes]
            assert [await future for future in futures] == [id_of(n) for n in range(9)]
    assert [lsn for request in server.lsns for lsn in request] == list(range(9))
    assert max(map(len, server.lsns)) == 2
    texts = [f'"payload":"{n}"' for n in range(9)]
    bodies = b"".join(server.bodies).decode()
    assert sorted(texts, key=bodies.index) == texts


async def test_the_buffer_is_bounded_in_bytes_and_takes_a_single_large_record() -> None:
    with TransactionServer() as server:
        async with (
            AsyncTopics(server.url, max_buffered_bytes=1000) as topics,
            topics.transaction() as txn,
        ):
            server.hold("records")
            await txn.write("t", "x" * 5000)
            second = asyncio.create_task(txn.write("t", "y"))
            await asked(server, 2)
            assert not second.done()
            server.release()
            await second
    assert server.lsns == [[0], [1]]


async def test_a_future_that_is_awaited_in_the_block_fails_when_the_time_is_over() -> None:
    async def await_in_the_block(topics: AsyncTopics) -> None:
        async with topics.transaction(timeout=0.05) as txn:
            await (await txn.write("t", "a"))

    with TransactionServer() as server:
        async with AsyncTopics(server.url) as topics:
            with pytest.raises(TransactionError, match=r"its time of 0\.05 s is over"):
                await await_in_the_block(topics)
        assert server.calls[-1] == "abort"
        assert "commit" not in server.calls


def test_threads_wait_for_room_and_each_keeps_its_order() -> None:
    with (
        TransactionServer() as server,
        Topics(server.url, max_buffered=50, batch_size=40) as topics,
    ):
        with topics.transaction() as txn, ThreadPoolExecutor(4) as pool:

            def write(thread: int) -> None:
                for number in range(200):
                    txn.write("t", f"{thread} {number}")

            list(pool.map(write, range(4)))
        assert len(txn.commit().records) == 800
    bodies = b"".join(server.bodies).decode()
    for thread in range(4):
        texts = [f'"{thread} {number}"' for number in range(200)]
        assert sorted(texts, key=bodies.index) == texts
    assert [lsn for request in server.lsns for lsn in request] == list(range(800))


def test_a_thread_that_waits_for_room_is_told_of_the_abort() -> None:
    with TransactionServer() as server, Topics(server.url, max_buffered=1) as topics:
        server.hold("records")
        waits = threading.Event()
        errors = []
        with topics.transaction() as txn:

            def write() -> None:
                try:
                    while True:
                        waits.set()
                        txn.write("t", "a")
                except TransactionError as error:
                    errors.append(str(error))

            thread = threading.Thread(target=write)
            thread.start()
            waits.wait(DEADLINE)
            assert wait_until(lambda: "records" in server.calls)
            txn.abort()
            thread.join()
        server.release()
    assert errors == [f"transaction {txn.id} is not committed: it was aborted"]


async def test_a_cancelled_block_aborts_and_its_futures_fail() -> None:
    with TransactionServer() as server:
        async with AsyncTopics(server.url) as topics:
            futures = []
            inside = asyncio.Event()

            async def work() -> None:
                async with topics.transaction() as txn:
                    futures.append(await txn.write("t", "a"))
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TransactionError, match="CancelledError in its block"):
                await futures[0]
    assert server.calls[-1] == "abort"
    assert "commit" not in server.calls


async def test_a_write_that_is_cancelled_while_it_waits_uses_no_lsn() -> None:
    with TransactionServer() as server:
        async with AsyncTopics(server.url, max_buffered=1) as topics:
            async with topics.transaction() as txn:
                server.hold("records")
                first = await txn.write("t", "a")
                waiting = [asyncio.create_task(txn.write("t", text)) for text in "bc"]
                await asked(server, 2)
                waiting[0].cancel()
                server.release()
                second = await waiting[1]
            assert [await first, await second] == [id_of(0), id_of(1)]
            assert waiting[0].cancelled()
    assert server.lsns == [[0], [1]]
    assert b'"b"' not in b"".join(server.bodies)


@pytest.mark.parametrize(
    ("held", "kind"), [("records", TransactionError), ("commit", OutcomeUnknownError)]
)
async def test_a_cancelled_commit_fails_the_futures_with_what_is_known(
    held: str, kind: type[Exception]
) -> None:
    with TransactionServer() as server:
        server.hold(held)
        async with AsyncTopics(server.url) as topics:
            futures = []

            async def work() -> None:
                async with topics.transaction() as txn:
                    futures.append(await txn.write("t", "a"))

            task = asyncio.create_task(work())
            await asked(server, 2 if held == "records" else 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(kind, match="cancelled"):
                await futures[0]
        server.release()
    assert ("abort" in server.calls) is (held == "records")


async def test_a_future_that_is_cancelled_does_not_harm_the_others() -> None:
    with TransactionServer() as server:
        async with AsyncTopics(server.url) as topics:
            async with topics.transaction() as txn:
                futures = [await txn.write("t", text) for text in "abc"]
                futures[1].cancel()
            assert [await futures[0], await futures[2]] == [id_of(0), id_of(2)]
    with TransactionServer() as server, Topics(server.url) as blocking:
        with blocking.transaction() as txn2:
            others = [txn2.write("t", text) for text in "abc"]
            assert others[1].cancel()
        assert [others[0].result(DEADLINE), others[2].result(DEADLINE)] == [id_of(0), id_of(2)]


async def test_futures_that_nobody_asks_leave_no_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    with TransactionServer(records=[refused("409 Conflict", "ended")]) as server:
        async with AsyncTopics(server.url) as topics:
            for _ in range(2):
                with pytest.raises((TransactionError, ZeroDivisionError)):  # noqa: PT012
                    async with topics.transaction() as txn:
                        await txn.write("t", "a")
                        await txn.write("t", "b")
                        if "abort" in server.calls:
                            _ = 1 / 0
    gc.collect()
    assert caplog.records == []
    assert server.calls.count("abort") == 2


def test_a_client_stays_as_long_as_its_transaction() -> None:
    code = """
import gc, sys
from oplogc.topics import Topics
topics = Topics(sys.argv[1])
with topics.transaction() as txn:  # starts the thread
    pass
with topics.transaction() as txn:
    del topics
    gc.collect()
    future = txn.write("t", "a")
print(future.result())
"""
    with TransactionServer() as server:
        assert run(code, server.url) == (0, f"{id_of(0)}\n")


def test_a_transaction_belongs_to_the_process_that_began_it() -> None:
    code = """
import os, sys
from oplogc.topics import Topics
with Topics(sys.argv[1]) as topics:
    with topics.transaction() as txn:
        future = txn.write("t", "parent")
        if os.fork() == 0:
            try:
                txn.write("t", "child")
            except ValueError as error:
                print(error, flush=True)
            with topics.transaction() as own:
                mine = own.write("t", "child")
            print(mine.result(), flush=True)
            os._exit(0)
        os.wait()
    print(future.result())
"""
    with TransactionServer() as server:
        said = f"the transaction belongs to the process that began it\n{id_of(0)}\n{id_of(0)}\n"
        assert run(code, server.url) == (0, said)
    assert server.calls.count("commit") == 2


def run(code: str, url: str) -> tuple[int, str]:
    done = forked.run(
        [sys.executable, "-c", code, url],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=dict(os.environ),
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout
