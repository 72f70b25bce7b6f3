"""A stream as an HTTP response."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from oplogd.model.event_id import Mark, Millis
from oplogd.stream.response import EventStream
from oplogd.stream.ring.filters import Filter
from tests.kits.stream.worlds import World


@pytest.mark.parametrize("position", [None, Millis(0)], ids=["sleeps", "asks the store"])
async def test_a_stream_leaves_nothing_to_the_garbage_collector_when_its_client_goes(
    world: World, monkeypatch: pytest.MonkeyPatch, position: Millis | None
) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    async def checkpoint() -> Mark:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(world.store, "checkpoint", checkpoint)
    consumer = await world.hub.connect(position, Filter(), checkpoints=True, address="test")
    stream = EventStream(world.hub, consumer, {})
    watched: list[weakref.ref[Any]] = [weakref.ref(consumer), weakref.ref(stream)]
    running = asyncio.create_task(stream({"type": "http"}, receive, send))
    while not (asked.is_set() or consumer.view.waiting):
        await asyncio.sleep(0)
    del consumer, stream
    gc.disable()
    try:
        gone.set()
        await running
        del running
        for _ in range(3):  # until the step that asks the store is cancelled
            await asyncio.sleep(0)
        assert [object_() for object_ in watched] == [None, None]
    finally:
        gc.enable()
    assert not world.hub.consumers
