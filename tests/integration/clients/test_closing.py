"""Closing clients of an agent that is away: from several threads, and without leaving memory."""

import gc
import threading
import weakref
from queue import Queue

import pytest

from oplogc import FlushError, OplogError, Producer
from oplogc.topics import Topics
from tests.kits.processes.logged import DEADLINE


def test_of_closes_at_once_one_fails_and_the_others_wait_for_it() -> None:
    topics = Topics("http://127.0.0.1:9", retry_for=60.0)
    pending = topics.publish("t", "a")
    closed: Queue[BaseException | None] = Queue()

    def close() -> None:
        try:
            topics.close(0.01)
        except BaseException as error:
            closed.put(error)
        else:
            closed.put(None)

    for _ in range(8):
        threading.Thread(target=close).start()
    found = [closed.get(timeout=DEADLINE) for _ in range(8)]
    assert [type(error) for error in found if error] == [FlushError]
    assert isinstance(pending.exception(DEADLINE), OplogError)


@pytest.mark.parametrize("has_sent", [True, False])
def test_a_closed_producer_is_freed_with_its_last_reference(has_sent: bool) -> None:
    producer = Producer("http://127.0.0.1:9")
    if has_sent:
        producer.send("insert", "video", "1")
        thread = producer._way._thread._thread  # type: ignore[union-attr]  # HTTP
        with pytest.raises(FlushError):
            producer.close(0)
        assert thread is not None
        thread.join(DEADLINE)
    else:
        producer.close()
    freed = weakref.ref(producer._way)
    gc.disable()
    try:
        del producer
        assert freed() is None
    finally:
        gc.enable()
