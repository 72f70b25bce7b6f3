"""The interface of the backends, without Spark."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from oplog_sync.backend import StoreRow, Wanted, make_backend, mongo
from oplog_sync.backend.sqlite import SqliteBackend
from oplog_sync.errors import OptionError
from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.operation import decode, format_ms
from oplogd.store import Entry, LogBounds
from oplogd.store.sqlite import SqliteStore
from tests.kits.servers.mongo import ferretdb
from tests.kits.spark.helpers import StoreLocation, StorePlace, append, live, log, opened, operation
from tests.kits.spark.large import make_store

T1, T2 = "2020-01-01T00:00:00.001Z", "2021-01-01T00:00:00.000Z"


@pytest.fixture
def store(place: StorePlace) -> StoreLocation:
    """25 live objects of two types and 5 deleted ones, in 40 operations."""
    append(place.store, [operation("insert", "video", f"v/{n}", T1, "user/1") for n in range(20)])
    append(place.store, [operation("insert", "tag", f"é{n}", T1) for n in range(10)])
    append(place.store, [operation("delete", "tag", f"é{n}", T2) for n in range(5)])
    append(place.store, [operation("update", "video", f"v/{n}", T2) for n in range(5)])
    return place.store


EVERYTHING = Wanted()


def states(store: StoreLocation, wanted: Wanted = EVERYTHING, width: int = 7) -> list[StoreRow]:
    backend = make_backend(str(store))
    return [
        row
        for part in backend.state_ranges(width)
        for rows in backend.states(part, wanted)
        for row in rows
    ]


def operations(
    store: StoreLocation, wanted: Wanted = EVERYTHING, after: int = 0, upto: int = 40
) -> list[StoreRow]:
    return [
        row for rows in make_backend(str(store)).operations((after, upto), wanted) for row in rows
    ]


def as_row(entry: Entry) -> StoreRow:
    data = decode(f'{{"event":"{entry.event}",{entry.data[1:]}'.encode(), format_ms(0))
    return StoreRow(data.key, entry.event, entry.offset, entry.ms, entry.data)


def test_the_ranges_hold_every_state_once(store: StoreLocation) -> None:
    ranges = make_backend(str(store)).state_ranges(7)
    assert 3 <= len(ranges) <= 5
    last = {row.key: row for row in map(as_row, log(store))}
    rows = states(store)
    assert len(rows) == 30
    assert {row.key: row for row in rows} == {
        key: (key, "delete" if row.event == "delete" else "insert", *row[2:])
        for key, row in last.items()
    }
    assert {row.key: row.data for row in rows if row.event == "insert"} == live(store)


def test_operations_come_as_they_were_logged_within_the_bounds(store: StoreLocation) -> None:
    entries = [as_row(entry) for entry in log(store)]
    assert len(entries) == 40
    assert operations(store) == entries
    assert operations(store, after=7, upto=33) == entries[7:33]


def test_conditions_are_applied_in_the_store(store: StoreLocation) -> None:
    ms = sorted({row.ms for row in operations(store)})[1]
    wanted: list[tuple[Wanted, Any]] = [
        (Wanted(types=frozenset(["tag", "user"])), lambda r: r.key.startswith("tag/")),
        (Wanted(types=frozenset()), lambda r: False),
        (Wanted(types=frozenset(["ta"])), lambda r: False),
        (Wanted(events=frozenset(["delete"])), lambda r: r.event == "delete"),
        (Wanted(ms=(ms, None)), lambda r: r.ms >= ms),
        (Wanted(ms=(None, ms)), lambda r: r.ms <= ms),
        (Wanted(ms=(-5, 1 << 50)), lambda r: True),
        (Wanted(parents=frozenset(["user/1", "x"])), lambda r: "user/1" in r.data),
        (Wanted(offset=(7, 33)), lambda r: 7 <= r.offset <= 33),
        (Wanted(offset=(-1, None)), lambda r: True),
    ]
    for each, holds in wanted:
        for read in (states, operations):
            assert read(store, each) == [row for row in read(store) if holds(row)], each
    for read in (states, operations):
        without_data = [row[:4] for row in read(store)]
        assert [row[:4] for row in read(store, Wanted(data=False))] == without_data


async def test_sqlite_locates_as_its_store_does_after_the_store_was_closed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "oplog.db"
    for number in range(2):
        store = SqliteStore(path)
        await store.open()
        await store.append(
            [decode(b'{"event":"insert","type":"video","id":"%d"}' % number, format_ms(0))]
        )
        bounds = await store.locate(1)
        await store.close()
    # Event ids from a time at which the file was closed belong to a lost history.
    assert bounds.unwritten
    # All members but now_ms, the last one.
    assert SqliteBackend(path).locate(1)[:-1] == bounds[:-1]


def test_every_backend_locates_as_its_store_does(store: StoreLocation) -> None:
    async def locate(offset: int) -> LogBounds:
        async with opened(store) as opened_store:
            return await opened_store.locate(offset)

    for offset in (0, 7, 40, 41):
        bounds = asyncio.run(locate(offset))
        assert make_backend(str(store)).locate(offset)[:4] == bounds[:4]
        before = max(
            (row for row in operations(store) if row.ms <= bounds.head.ms - 1),
            default=None,
            key=lambda row: row.offset,
        )
        found = make_backend(str(store)).seek(bounds.head.ms - 1)
        assert found == (Mark(0, 0) if before is None else Mark(before.offset, before.ms))
        assert bounds.head.offset == 40


def test_settling_folds_entries_that_no_agent_has_folded(plain_url: str) -> None:
    StorePlace(plain_url, "plain").create()
    append(plain_url, [operation("insert", "video", "1", T1)])
    with MongoClient[dict[str, Any]](plain_url) as client:
        database = client.get_default_database()
        database.oplog_states.delete_many({})
        database.oplog_meta.update_one({"_id": "oplog_ops"}, {"$set": {"n": 0}})
        assert states(plain_url) == []
        make_backend(plain_url).settle()
        assert [row.key for row in states(plain_url)] == ["video/1"]
        before = database.oplog_meta.find_one({"_id": "oplog_ops:lease"})
        make_backend(plain_url).settle()
        # Nothing to fold: nothing was written.
        assert database.oplog_meta.find_one({"_id": "oplog_ops:lease"}) == before


def test_a_database_without_a_log_or_with_another_servers_is_named(plain_url: str) -> None:
    backend = make_backend(plain_url)
    assert not backend.exists()
    with pytest.raises(StoreError, match="there is no oplog in its database"):
        backend.check()
    with MongoClient[dict[str, Any]](plain_url) as client:
        client.get_default_database().oplog_ops.insert_one({"event": "insert"})
    with pytest.raises(StoreError, match=r"of the first server.*start an agent"):
        backend.exists()
    with pytest.raises(StoreError, match=r"of the first server.*start an agent"):
        asyncio.run(backend.corrector())


def test_a_member_that_may_lag_is_read_only_if_it_has_the_range(capped_url: str) -> None:
    StorePlace(capped_url, "capped").create()
    append(capped_url, [operation("insert", "video", str(n), T1) for n in range(10)])
    url = f"{capped_url}?readPreference=secondaryPreferred"
    assert len(operations(url, upto=10)) == 10
    assert len(states(url, Wanted(offset=(None, 10)))) == 10
    assert len(states(url)) == 10


@pytest.mark.mongo
@pytest.mark.parametrize("table", ["states", "operations"])
def test_a_reader_continues_after_its_server_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(mongo, "CHUNK_ROWS", 50)
    with ferretdb(tmp_path) as server:
        place = StorePlace(f"{server.url}/oplog", "capped").create()
        append(place.store, [operation("insert", "video", f"{n:03}", T1) for n in range(300)])
        backend = make_backend(str(place.store))
        chunks: Iterator[list[StoreRow]] = (
            backend.operations((0, 300), Wanted())
            if table == "operations"
            else backend.states((None, None), Wanted())
        )
        rows = next(chunks)
        server.kill()
        server.start()
        for chunk in chunks:
            rows += chunk
        assert [row.key for row in rows] == [f"video/{n:03}" for n in range(300)]


def test_the_error_for_a_server_that_is_away_hides_the_password() -> None:
    backend = make_backend("mongodb://user:s3cret@127.0.0.1:1/oplog?serverSelectionTimeoutMS=100")
    assert backend.name == "MongoDB at 127.0.0.1:1"
    for call in (
        backend.check,
        backend.settle,
        lambda: backend.locate(0),
        lambda: backend.state_ranges(10),
    ):
        with pytest.raises(StoreUnavailableError, match=r"MongoDB at 127\.0\.0\.1:1") as refused:
            call()
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["mongodb://user:s3cret@h:port/db", "mongodb://user:s3cret@h/db?w=s3cret&ssl=maybe"]
)
def test_a_wrong_url_names_the_flag_and_keeps_the_password_secret(url: str) -> None:
    with pytest.raises(OptionError, match="--mongo-url") as refused:
        make_backend(url)
    assert "s3cret" not in str(refused.value)


def test_the_job_can_read_the_store_of_the_benchmarks(tmp_path: Path) -> None:
    make_store(tmp_path / "oplog.db", 50)
    backend = make_backend(str(tmp_path / "oplog.db"))
    backend.check()
    rows = [
        row
        for part in backend.state_ranges(20)
        for rows in backend.states(part, Wanted())
        for row in rows
    ]
    assert sorted(row.offset for row in rows) == list(range(1, 51))
    assert backend.locate(0).head.offset == 50
