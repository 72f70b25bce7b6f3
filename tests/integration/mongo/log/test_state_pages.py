"""Pages of states that share a time."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient

from oplogd.model.operation import decode_data
from oplogd.store import State, StateCursor
from oplogd.store.mongo.link.layout import states_past
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op

THEN = datetime(2014, 11, 6, 11, 4, 39, 41_000, UTC)


GOOD = {"ts": DatetimeMS(1_415_271_879_041), "p": ["a"], "t": "video", "id": "x"}


def test_a_page_of_states_that_share_a_time_is_a_range_of_the_index() -> None:
    at = DatetimeMS(5)
    assert states_past(StateCursor(5, None), 9) == [{"ts": {"$gte": at}, "n": {"$not": {"$gt": 9}}}]
    assert states_past(StateCursor(5, f"{8:012x}video/x"), 9) == [
        {"ts": at, "n": {"$gt": 7, "$lte": 9}},
        {"ts": {"$gt": at}, "n": {"$not": {"$gt": 9}}},
    ]
    for tie, n in ((0, None), (1, 0)):
        first = states_past(StateCursor(5, f"{tie:012x}video/x"), 9)[0]
        assert first == {"ts": at, "n": n, "_id": {"$gt": "video/x"}}


@pytest.mark.parametrize("limit", [1, 2, 7, 500])
async def test_states_of_one_time_are_paged_each_once_and_in_order(
    plain_url: str, make_store: MakeStore, limit: int
) -> None:
    with MongoClient[dict[str, Any]](plain_url) as client:
        states = client.get_default_database().oplog_states
        old = [
            {
                "_id": f"video/old-{n}",
                "event": "insert",
                "ts": THEN,
                "data": {**GOOD, "id": f"old-{n}"},
            }
            for n in range(9)
        ]
        states.insert_many(old)
        store = make_store(plain_url, "plain")
        await store.open()
        await store.append([op(str(number)) for number in range(20)])
        mark = await store.checkpoint()
        states.update_many({}, {"$set": {"ts": THEN}})
        states.update_many({"_id": {"$in": ["video/old-3", "video/old-4"]}}, {"$unset": {"n": ""}})
        found: list[State] = []
        cursor: StateCursor | None = StateCursor(0, None)
        while cursor is not None:
            page = await store.states(cursor, mark.offset, live_only=True, limit=limit)
            assert len(page.states) <= limit
            found += page.states
            cursor = page.next
        expected = [
            "old-3",
            "old-4",
            *(f"old-{n}" for n in (0, 1, 2, 5, 6, 7, 8)),
            *map(str, range(20)),
        ]
        assert [decode_data(each.data).id for each in found] == expected
        assert (
            len((await store.states(StateCursor(0, None), 10, live_only=True, limit=500)).states)
            == 19
        )
