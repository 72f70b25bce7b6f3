"""Damaged documents neither end an agent nor stop a replication."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient

from oplogd.model.operation import decode_data
from oplogd.store.mongo.link.damage import FIRST_MS, LAST_MS, Damage, sound_data
from oplogd.store.mongo.link.layout import entry, key_of, state, state_document
from tests.kits.agents.agent import DEADLINE, fold
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.agents import agent
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import live_states, op, whole_log

THEN = datetime(2014, 11, 6, 11, 4, 39, 41_000, UTC)
GOOD = {"ts": DatetimeMS(1_415_271_879_041), "p": ["a"], "t": "video", "id": "x"}
ANY = [
    None,
    "",
    "text",
    5,
    -1,
    1.5,
    float("nan"),
    True,
    [],
    [1],
    {},
    {"a": 1},
    b"x",
    ObjectId(),
    DatetimeMS(2**62),
]


@pytest.mark.parametrize("member", ["ts", "p", "t", "id", "data", "event"])
def test_any_value_of_any_member_is_read_as_something_sound(member: str) -> None:
    for value in [*ANY, ...]:
        data: dict[str, Any] = dict(GOOD)
        document: dict[str, Any] = {
            "_id": ObjectId(),
            "event": "insert",
            "data": data,
            "n": 7,
            "ts": GOOD["ts"],
        }
        place = document if member in ("data", "event") else data
        if value is ...:
            del place[member]
        else:
            place[member] = value
        damage = Damage()
        read = entry(document, damage)
        assert read.offset == 7
        assert read.event in ("insert", "update", "delete")
        decoded = decode_data(read.data)
        assert decoded.type
        assert decoded.id
        assert key_of(document) == f"{decoded.type}/{decoded.id}"
        left = state_document(document, damage)
        again = {**left, "_id": key_of(document)}
        assert state(again, Damage()).data == read.data
        assert sound_data(again, 0, unused := Damage()) == left["data"]
        assert unused.warning is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (FIRST_MS, "0001-01-01T00:00:00.000Z"),
        (FIRST_MS - 3_600_000, "0001-01-01T00:00:00.000Z"),
        (-(2**63), "0001-01-01T00:00:00.000Z"),
        (LAST_MS, "9999-12-31T23:59:59.999Z"),
        (LAST_MS + 1, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_date_outside_the_years_1_to_9999_is_read_as_the_nearest(ms: int, text: str) -> None:
    damage = Damage()
    document = {
        "_id": "video/x",
        "event": "insert",
        "ts": GOOD["ts"],
        "n": 0,
        "data": {**GOOD, "ts": DatetimeMS(ms)},
    }
    assert decode_data(state(document, damage).data).timestamp == text
    assert (damage.warning is None) == (FIRST_MS <= ms <= LAST_MS)
    if damage.warning:
        assert "1 damaged documents" in damage.warning
        assert "'video/x': data.ts lies outside the years 1 to 9999" in damage.warning


def test_a_database_of_the_first_server_with_any_dates_and_members_replicates(
    plain_url: str, tmp_path: Path
) -> None:
    data = {"ts": THEN, "p": ["x"], "t": "video"}
    wrong: dict[str, dict[str, Any]] = {
        "early": {"ts": DatetimeMS(FIRST_MS - 3_600_000)},
        "late": {"ts": DatetimeMS(LAST_MS + 1)},
        "number": {"ts": 1_415_271_879_041},
        "null": {"ts": None, "p": None},
        "text": {"p": "parent"},
        "mixed": {"p": ["a", None, 5]},
        "untyped": {"t": None},
    }
    states: list[dict[str, Any]] = [
        {
            "_id": f"video/{name}",
            "event": "insert",
            "ts": THEN,
            "data": {**data, "id": name, **change},
        }
        for name, change in wrong.items()
    ]
    states += [
        {"_id": f"video/ts-{n}", "event": "insert", "ts": ts, "data": {**data, "id": f"ts-{n}"}}
        for n, ts in enumerate([None, 5, DatetimeMS(-1), DatetimeMS(2**50), "x"])
    ]
    states += [{"_id": "video/bare", "event": "insert", "ts": THEN}]
    with MongoClient[dict[str, Any]](plain_url) as client:
        client.get_default_database().oplog_ops.insert_one({"event": "insert", "data": data})
        client.get_default_database().oplog_states.insert_many(states)
    with agent(tmp_path, plain_url, "plain") as only:
        only.wait_status(status="OK")
        copy = only.replicate()
        assert set(copy) == {document["_id"] for document in states}
        assert copy["video/early"].operation["timestamp"] == "0001-01-01T00:00:00.000Z"
        assert copy["video/late"].operation["timestamp"] == "9999-12-31T23:59:59.999Z"
        assert copy["video/number"].operation["timestamp"] == "2014-11-06T11:04:39.041Z"
        assert copy["video/text"].operation["parents"] == ["parent"]
        assert copy["video/mixed"].operation["parents"] == ["a"]
        assert all(len(event.id) <= 13 for event in copy.values())
        warnings = only.status()["store"]["warnings"]
        assert any(
            "dates of the first server's states" in each and "'video/" in each for each in warnings
        )
        assert any("damaged documents" in each for each in warnings)


def test_a_damaged_entry_ends_no_agent_and_keeps_the_log_dense(
    plain_url: str, tmp_path: Path
) -> None:
    with (
        MongoClient[dict[str, Any]](plain_url) as client,
        agent(tmp_path, plain_url, "plain") as holder,
        agent(tmp_path, plain_url, "plain") as other,
        holder.follow("0") as one,
        other.follow("0") as two,
    ):
        for stream in (one, two):
            stream.until("live")
        log = client.get_default_database().oplog_ops
        damaged: list[dict[str, Any]] = [
            {"event": "insert", "data": {"ts": THEN, "p": 5, "t": "video", "id": "p"}},
            {
                "event": "insert",
                "data": {"ts": DatetimeMS(2**60), "p": [], "t": "video", "id": "ts"},
            },
            {"event": "insert", "data": {"t": "video", "id": "no-ts"}},
            {"event": "insert", "data": {"ts": THEN, "id": "no-t"}},
            {"event": "insert", "data": None},
            {"event": 5},
            {},
        ]
        assert holder.post({"event": "insert", "type": "video", "id": "first"}) == 204
        for number, document in enumerate(damaged, 2):
            now = (log.find_one({"n": number - 1}, {"_id": 1}) or {})["_id"].binary[:6]
            log.insert_one(
                {"_id": ObjectId(now + number.to_bytes(6, "big")), "n": number, **document}
            )
        last = {"event": "insert", "type": "video", "id": "last"}
        assert other.post(last) == 204
        events = [one.take(9), two.take(9)]
        assert events[0] == events[1]
        assert [int(event.id[12:], 16) for event in events[0]] == list(range(1, 10))
        holder.wait_status(status="OK")
        for each in (holder, other):
            assert each.status()["status"] == "OK"
            assert fold(each.replicate().values()) == fold(events[0])
        assert any("damaged documents" in each for each in holder.status()["store"]["warnings"])


async def test_what_another_program_wrote_into_a_plain_log_leaves_with_the_entries_of_its_time(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    store = make_store(plain_url, "plain", max_bytes=20_000)
    await store.open()
    with MongoClient[dict[str, Any]](plain_url) as client:
        log = client.get_default_database().oplog_ops
        present = ObjectId.from_datetime(datetime.fromtimestamp(clock.ms / 1000, UTC))
        log.insert_one({"_id": present, "event": "insert", "data": GOOD})
        for start in range(0, 400, 50):
            await store.append([op(str(number)) for number in range(start, start + 50)])
        assert log.find_one({"n": None}) is not None, (
            "it is of the present second, so there is reason to warn"
        )
        old = ObjectId.from_datetime(THEN)
        log.delete_many({"n": None})
        log.insert_one({"_id": old, "event": "insert", "data": GOOD})
        for start in range(400, 1_000, 50):
            await store.append([op(str(number)) for number in range(start, start + 50)])
        await store.checkpoint()
        deadline = time.monotonic() + DEADLINE
        while log.find_one({"n": None}) is not None:
            assert time.monotonic() < deadline, "it stays"
            await store.append([op("more", "insert", "video", ("p" * 200,))])
        entries = await whole_log(store)
        assert [each.offset for each in entries] == list(
            range(entries[0].offset, entries[-1].offset + 1)
        )
    assert len(await live_states(store)) >= 1_000


async def test_an_offset_with_a_decimal_point_is_one_and_any_other_value_is_passed_over(
    plain_url: str, make_store: MakeStore
) -> None:
    """A shell stores 4 as 4.0."""
    store = make_store(plain_url, "plain")
    await store.open()
    await store.append([op(str(number)) for number in range(1, 4)])
    with MongoClient[dict[str, Any]](plain_url) as client:
        log = client.get_default_database().oplog_ops
        log.insert_one({"event": "insert", "data": {**GOOD, "id": "4"}, "n": 4.0})
        for n in (0.5, 5.5, float("inf"), 2**60, "4"):
            log.insert_one({"event": "insert", "data": {**GOOD, "id": "other"}, "n": n})
    assert [entry.offset for entry in await store.follow(0, 100, 5)] == [1, 2, 3, 4]
    await store.append([op("5")])
    assert [entry.offset for entry in await store.read(2, 100)] == [3, 4, 5]
    assert (await live_states(store)).keys() == {f"video/{number}" for number in range(1, 6)}
    fresh = make_store(plain_url, "plain", lease=60)
    await fresh.open()
    for reader in (store, fresh):
        stats = await reader.stats()
        assert (stats.operations, stats.newest and stats.newest.offset) == (5, 5)
    await fresh.append([op("6")])
    assert [entry.offset for entry in await fresh.read(0, 100)] == [1, 2, 3, 4, 5, 6]
    assert any("n is no offset" in each for each in (await fresh.stats()).warnings)


async def test_an_entry_longer_than_a_read_is_passed(plain_url: str, make_store: MakeStore) -> None:
    """Another program wrote it. The next read also compares the entry before."""
    store = make_store(plain_url, "plain")
    await store.open()
    with MongoClient[dict[str, Any]](plain_url) as client:
        data = {**GOOD, "p": ["p" * 2_000_000]}
        client.get_default_database().oplog_ops.insert_one(
            {"event": "insert", "data": data, "n": 1}
        )
    (entry_,) = await store.follow(0, 100, 5)
    await store.append([op("next")])
    assert [each.offset for each in await store.follow(1, 100, 5, entry_.ms)] == [2]
