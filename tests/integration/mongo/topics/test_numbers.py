"""Inserts that arrive for a log whose number is used again."""

import asyncio
from dataclasses import replace

import pytest
from pymongo.database import Database

from oplogd.store.mongo.link.layout import Document
from oplogd.store.numbers import REST_MS, begin_of, log_of, number_of
from oplogd.store.topics import Refused
from tests.integration.mongo.topics.test_sweep import AT_ONCE, TTL, ready
from tests.integration.mongo.topics.topics import (
    NAME,
    append,
    inserts_entries,
    payloads_of,
    place,
    stored,
)
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Wire


@pytest.mark.parametrize("pause", [0, 86_400])
async def test_a_message_whose_writer_paused_until_its_number_was_used_again_is_seen_nowhere(
    pause: int,
    clock: VirtualClock,
    wire: Wire,
    database: Database[Document],
    plain_url: str,
    make_store: MakeStore,
) -> None:
    """``pause``: as the writer's clock measures it, in seconds. A broken one shows none."""
    own = VirtualClock()
    own_clock = replace(clock.dates, boot=own.monotonic)
    other = await ready(make_store(plain_url, "plain", lease=60, timing=AT_ONCE))
    store = await ready(make_store(wire.url(), "plain", clock=own_clock))
    topic = await other.topics.create(NAME, None)
    await place(other.topics, topic, "early")
    held = wire.hold(inserts_entries)
    writing = asyncio.create_task(append(store.topics, topic, "late"))
    await asyncio.to_thread(held.wait)
    await other.topics.delete(NAME)
    await other.topics.sweep()
    clock.ms += REST_MS
    await other.topics.sweep()
    last = {"$set": {"logs": log_of(number_of(topic.log) - 1, 1)}}
    database["oplog_topics"].update_one({"_id": "#"}, last)
    new = await other.topics.create(NAME, TTL)
    assert new.log == log_of(number_of(topic.log), 1)
    own.seconds += pause
    await asyncio.to_thread(held.release)
    outcome = await writing
    assert (outcome is Refused.DELETED) == (pause > 0)
    assert len(stored(database, topic)) == (pause == 0)
    await place(other.topics, new, "new")
    for each in (other, store):
        assert await payloads_of(each.topics, new) == ["new"]
        assert (await each.topics.log(new).locate()).front.offset == begin_of(new.log)
    clock.ms += 1000 * TTL + 1
    await place(other.topics, new, "newer")
    await other.topics.sweep()
    assert [kind for _, kind in stored(database, topic)] == ["message"]
    await store.close()
