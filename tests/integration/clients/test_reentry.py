"""Calls of a client from a future's callback, and from a signal's handler within another call."""

import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import pytest

from oplogc import BufferFullError, FlushError
from oplogc.process.loop_thread import LoopThread
from oplogc.topics import Topics
from tests.integration.clients.scripted_pointers import PointerServer
from tests.integration.clients.scripted_transactions import TransactionServer, id_of
from tests.kits.agents.agent import DEADLINE

AWAY = "http://127.0.0.1:9"
REFUSED = "a future's callback cannot wait: make this call in another thread"
_R = TypeVar("_R")


def error_of(call: Callable[[], object]) -> str:
    """Return the type and the sentence of a call's error."""
    try:
        return f"no error, {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def settle(future: "Future[_R]", call: Callable[[], _R]) -> None:
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)


def result_of(place: Callable[[Callable[[], None]], object], call: Callable[[], _R]) -> _R:
    """Return the result of a call in another thread. ``place``: lets this thread call it."""
    future: Future[_R] = Future()
    place(lambda: settle(future, call))
    return future.result(DEADLINE)


def in_thread(call: Callable[[], object]) -> None:
    threading.Thread(target=call, daemon=True).start()


def interrupt(thread: LoopThread, name: str, handler: Callable[[], object]) -> None:
    """Let the next call of a method begin with a handler, as of a signal at this moment."""
    method = getattr(thread, name)

    def interrupted(*arguments: object) -> Any:
        delattr(thread, name)
        handler()
        return method(*arguments)

    setattr(thread, name, interrupted)


def test_topics_refuse_a_close_in_a_callback_and_show_their_counters() -> None:
    topics = Topics(AWAY, retry_for=60.0)
    future = topics.publish("t", "a")
    found: Future[tuple[str, int]] = Future()
    future.add_done_callback(
        lambda _: settle(found, lambda: (error_of(topics.close), topics.counters.published))
    )
    in_thread(lambda: error_of(lambda: topics.close(0)))  # it holds the lock of all closes
    assert found.result(DEADLINE) == (f"RuntimeError: {REFUSED}", 1)
    topics.close()


def test_topics_stay_open_after_a_refused_close() -> None:
    topics = Topics(AWAY)
    assert result_of(topics._thread.soon, lambda: error_of(topics.close)).endswith(REFUSED)
    assert not topics.publish("t", "a", durable=False).exception(DEADLINE)
    with pytest.raises(FlushError):
        topics.close(0)


def test_a_message_without_room_does_not_wait_in_a_callback() -> None:
    topics = Topics(AWAY, max_buffered=1, retry_for=10 * DEADLINE)
    topics.publish("t", "a")
    future = result_of(topics._thread.soon, lambda: topics.publish("t", "b"))
    assert isinstance(future.exception(DEADLINE), BufferFullError)
    with pytest.raises(FlushError):
        topics.close(0)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_counters_are_those_at_the_end_if_a_close_comes_between(
    monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    def cancelled(work: Coroutine[Any, Any, object]) -> None:
        work.close()
        raise CancelledError

    topics = Topics(AWAY)
    topics.publish("t", "a")
    assert topics.counters.buffered == 1
    if is_cancelled:
        monkeypatch.setattr(topics._thread, "call", cancelled)
    else:
        interrupt(topics._thread, "call", lambda: error_of(lambda: topics.close(0)))
    assert topics.counters.published == 1
    monkeypatch.undo()
    error_of(lambda: topics.close(0))


def test_a_signal_s_handler_publishes_within_publish() -> None:
    topics = Topics(AWAY)
    interrupt(topics._thread, "soon", lambda: topics.publish("t", "handler"))
    result_of(in_thread, lambda: topics.publish("t", "a"))
    assert topics.counters.published == 2
    with pytest.raises(FlushError):
        topics.close(0)


def test_a_signal_s_handler_closes_topics_within_publish() -> None:
    topics = Topics(AWAY)
    interrupt(topics._thread, "soon", topics.close)
    with pytest.raises(ValueError, match="this object is closed"):
        result_of(in_thread, lambda: topics.publish("t", "a"))


def test_a_transaction_at_its_commit_refuses_calls_of_callbacks() -> None:
    with TransactionServer() as server, Topics(server.url) as topics:
        found: Future[list[str]] = Future()
        with topics.transaction() as txn:
            future = txn.write("t", "a")
            calls = (lambda: txn.write("t", "b"), txn.commit, txn.abort)
            future.add_done_callback(lambda _: settle(found, lambda: [*map(error_of, calls)]))
            result_of(in_thread, txn.commit)
        ended = f"ValueError: transaction {txn.id} has ended"
        assert found.result(DEADLINE) == [ended, f"RuntimeError: {REFUSED}", ended]


def test_a_callback_writes_records_while_there_is_room() -> None:
    with TransactionServer() as server, Topics(server.url, max_buffered=2) as topics:
        with topics.transaction() as txn:
            server.hold("records")
            future = result_of(topics._thread.soon, lambda: txn.write("t", "a"))
            txn.write("t", "b")
            with pytest.raises(RuntimeError, match=REFUSED):
                result_of(topics._thread.soon, lambda: txn.write("t", "c"))
            server.release()
        assert future.result(DEADLINE) == id_of(0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_signal_s_handler_may_use_a_transaction_within_write(is_commit: bool) -> None:
    with TransactionServer() as server, Topics(server.url) as topics, topics.transaction() as txn:
        handler = txn.commit if is_commit else lambda: txn.write("t", "handler")
        interrupt(topics._thread, "soon", handler)
        future = result_of(in_thread, lambda: txn.write("t", "a"))
        if is_commit:
            assert error_of(lambda: future.result(DEADLINE)).endswith(f"{txn.id} has ended")
        else:
            assert txn.commit().records == (id_of(0), id_of(1))


def test_a_signal_s_handler_may_commit_within_commit() -> None:
    with TransactionServer() as server, Topics(server.url) as topics, topics.transaction() as txn:
        txn.write("t", "a")
        interrupt(topics._thread, "call", txn.commit)
        assert result_of(in_thread, txn.commit).records == (id_of(0),)
    assert server.calls == ["txns", "records", "commit"]


def test_a_foreign_publisher_refuses_a_call_within_its_own() -> None:
    within = "RuntimeError: a signal's handler called this publisher within another of its calls"
    with PointerServer() as server, Topics(server.url) as topics:
        publisher, found = topics.foreign_publisher(), list[str]()
        publisher.start(1)
        publisher.publish("t", "a")
        calls = (lambda: publisher.publish("t", "handler"), publisher.rollback)
        interrupt(topics._thread, "call", lambda: found.extend(map(error_of, calls)))
        (answer,) = result_of(in_thread, publisher.persist)
        assert found == [within, within]
        assert len(answer.places) == 1
        publisher.publish("t", "b")


def test_a_foreign_publisher_refuses_the_calls_of_callbacks() -> None:
    with PointerServer() as server, Topics(server.url) as topics:
        publisher = topics.foreign_publisher()
        publisher.start(1)
        publisher.publish("t", "a")
        found: Future[str] = Future()
        callback = lambda: settle(found, lambda: error_of(publisher.persist))  # noqa: E731
        interrupt(topics._thread, "call", lambda: topics._thread.soon(callback))
        result_of(in_thread, publisher.persist)
        assert found.result(DEADLINE) == f"RuntimeError: {REFUSED}"
