"""What only SQLite does: values of any type in a column, one writer at a time, a file."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from oplog_relay.db import DatabaseOutbox, open_outbox
from oplog_relay.db.schema import ddl
from oplog_relay.model.bindings import Purged
from oplog_relay.model.errors import ConfigError, OutboxError
from oplog_relay.model.row import Row
from oplog_relay.model.settings import DatabaseSettings
from oplog_relay.outbox import OutboxWriter
from tests.kits.relay.places import Kind, Place, ids_of

A = uuid4()


@pytest.fixture
def kind() -> Kind:
    return "sqlite"


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ("header_keys = '[\"a\"]'", "there are 1 header keys and 0 header values"),
        ("header_keys = '[1]', header_values = '[\"a\"]'", "a header's key or value is not a str"),
        ("header_keys = '{\"a\": 1}'", "header_keys is not a JSON list of strings"),
        ("header_keys = '[' || replace(hex(zeroblob(60000)), '00', '[')", "header_keys is not a"),
        ("header_values = 'a'", "header_values is not a JSON list of strings"),
        ("header_values = 7", "header_values is not a JSON list of strings"),
        ("value = x'ff'", "the value is not valid UTF-8"),
        ("key = x'6bff'", "the key is not valid UTF-8"),
        ("topic = x'ff', key = x'ff'", "the topic is not valid UTF-8; the key is not valid UTF-8"),
        (
            "header_keys = '[\"\\ud800\"]', header_values = '[\"a\"]'",
            "a header's key or value is not valid UTF-8",
        ),
        ("create_time = 'yesterday'", "the create time is no date and time"),
        ("create_time = 1e300", "the create time is out of range"),
        ("create_time = 9e999", "the create time is out of range"),
    ],
)
async def test_a_faulty_row_is_told_and_does_not_stop_the_others(
    columns: str, fault: str, place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert("a", "b")
    place.run(f"UPDATE outbox SET {columns} WHERE id = 1")
    faulty, good = await outbox.mark(A, 10)
    assert faulty.fault.startswith(fault)
    assert (good.id, good.fault) == (2, "")
    assert (await outbox.backlog(10)).rows == 2
    f"{faulty}".encode()  # it can be logged


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("2026-01-02 03:04:05", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02 03:04:05.678901", "2026-01-02T03:04:05.678901+00:00"),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678000+00:00"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05+00:00"),
        (1767323045, "2026-01-02T03:04:05+00:00"),
        (1767323045.5, "2026-01-02T03:04:05.500000+00:00"),
        (1767323045678, "2026-01-02T03:04:05.678000+00:00"),
        ("1767323045678", "2026-01-02T03:04:05.678000+00:00"),
        (1767323045678901, "2026-01-02T03:04:05.678901+00:00"),
    ],
)
async def test_times_are_text_or_numbers(
    stored: object, told: str, place: Place, outbox: DatabaseOutbox
) -> None:
    """A column of the type TEXT would turn numbers into text."""
    place.run("DROP TABLE outbox")
    place.run(
        "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, create_time, topic, key, value,"
        " header_keys DEFAULT '[]', header_values DEFAULT '[]', leader_id)"
    )
    place.run("INSERT INTO outbox (create_time, topic, key, value) VALUES (?, 't', 7, 8)", stored)
    await outbox.check()
    (row,) = await outbox.mark(A, 1)
    assert (row.create_time.isoformat(), row.key, row.value) == (told, "7", "8")
    assert await outbox.reset(A, key="7") == 1


async def test_an_idle_relay_does_not_wait_for_writers(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert("a")
    assert ids_of(await outbox.mark(A, 1)) == [1]
    with place.connect() as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert await outbox.mark(A, 1) == []
        writer.rollback()


async def test_a_writer_that_takes_too_long_fails_the_call_only(place: Place) -> None:
    place.insert("a")
    outbox = open_outbox(DatabaseSettings(f"{place.url}?timeout=0.01"))
    with place.connect() as writer:
        writer.execute("BEGIN IMMEDIATE")
        row = Row(1, datetime.now(UTC), "topic", "a", "value")
        for call in (outbox.mark(A, 1), outbox.purge(A, [row]), outbox.reset(A)):
            with pytest.raises(OutboxError, match=r"^SQLite \(database\.url\): .*locked"):
                await call
        writer.rollback()
    assert ids_of(await outbox.mark(A, 1)) == [1]
    await outbox.dispose()


async def test_a_file_that_does_not_exist_is_named_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    outbox = open_outbox(DatabaseSettings(f"sqlite:///{path}"))
    with pytest.raises(ConfigError, match=r"^database\.url: there is no file '.*none\.db'"):
        await outbox.check()
    with pytest.raises(OutboxError, match="unable to open"):
        await outbox.mark(A, 1)
    await outbox.dispose()
    assert not path.exists()


@pytest.mark.parametrize("is_uri", [False, True])
async def test_a_file_that_takes_the_place_of_an_open_one_is_opened_and_told_once(
    is_uri: bool, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, folder = tmp_path / "app.db", tmp_path / "new"
    folder.mkdir()
    new = Place("sqlite", folder, None)
    new.create()
    new.insert("a", "b")
    url = f"sqlite:///file:{path}?uri=true" if is_uri else place.url
    outbox = open_outbox(DatabaseSettings(url))
    assert await outbox.mark(A, 9) == []
    identity = await outbox.identity()
    path.unlink()
    assert (await outbox.mark(A, 9), await outbox.identity(), caplog.messages) == ([], "", [])
    (folder / "app.db").rename(path)
    assert ids_of(await outbox.mark(A, 9)) == [1, 2]
    assert await outbox.identity() not in ("", identity)
    assert caplog.messages == [f"the file {path} has been replaced: the new one is opened"]
    await outbox.dispose()


async def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
    path = tmp_path / "a b%20?.db"
    path.write_text("my shopping list\n" * 100)
    outbox = open_outbox(DatabaseSettings(f"sqlite:///{tmp_path}/a%20b%2520%3F.db"))
    with pytest.raises(OutboxError, match="not a database"):
        await outbox.check()
    await outbox.dispose()


async def test_a_new_row_with_the_id_of_a_purged_one_is_marked_and_kept(place: Place) -> None:
    """A table without AUTOINCREMENT that nobody has checked."""
    place.run("DROP TABLE outbox")
    place.run(ddl("sqlite").replace("AUTOINCREMENT,", ",", 1))
    outbox = place.open()
    for key in "ab":
        place.insert(key)
        (row,) = await outbox.mark(A, 9, 1 + (key == "b"))
        assert (row.id, row.key) == (1, key)
        place.run("DELETE FROM outbox")
        place.insert("z")
        assert await outbox.purge(A, [row]) == Purged(changed=1)
        place.run("DELETE FROM outbox")
    await outbox.dispose()


@pytest.mark.parametrize("passed", [(), ("b", "x")])
async def test_a_key_that_is_no_valid_text_stops_no_mark(
    passed: Sequence[str], place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert("a", "b")
    place.run("UPDATE outbox SET key = CAST(x'ff' AS TEXT) WHERE id = 1")
    assert ids_of(await outbox.mark(A, 9, 1, passed)) == [1, 2][: 1 if passed else 2]


# Bytes that are not UTF-8, texts that look like them, and texts that NOCASE takes for equal.
KEYS = (b"k\xff", b"k\xfe", b"k?", b"k\\xff", "k\ufffd".encode(), b"k", b"K", b"", b"k\xff")


@pytest.mark.parametrize("collation", ["BINARY", "NOCASE"])
async def test_keys_are_told_apart_and_reset_by_their_bytes(collation: str, place: Place) -> None:
    place.run("DROP TABLE outbox")
    place.run(ddl("sqlite").replace("key TEXT", f"key TEXT COLLATE {collation}"))
    place.insert(*"a" * len(KEYS))
    for number, raw in enumerate(KEYS, 1):
        place.run("UPDATE outbox SET key = CAST(? AS TEXT) WHERE id = ?", raw, number)
    outbox = place.open()
    rows = await outbox.mark(A, 20, 1)
    assert [os.fsencode(row.key) for row in rows] == [*KEYS]
    assert [bool(row.fault) for row in rows] == [raw in (b"k\xff", b"k\xfe") for raw in KEYS]
    for key in dict.fromkeys(row.key for row in rows):
        same = [row.id for row in rows if row.key == key]
        assert await outbox.reset(A, key=key) == len(same)
        others = [row.key for row in rows if row.key != key]
        assert ids_of(await outbox.mark(A, 20, 2, others)) == same
    await outbox.dispose()


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
async def test_keys_of_a_database_in_utf_16_are_passed_over_and_reset(
    encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "wide.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute(ddl("sqlite"))
        for key in ("a", "\u00e9\U0001f600"):
            OutboxWriter().message(connection, "t", key=key, value="v")
        connection.commit()
    outbox = open_outbox(DatabaseSettings(f"sqlite:///{path}"))
    (row,) = await outbox.mark(A, 9, 1, ["a"])
    assert row.key == "\u00e9\U0001f600"
    assert await outbox.reset(A, key=row.key) == 1
    await outbox.dispose()


async def test_a_text_that_no_database_holds_is_refused_in_a_sentence(
    outbox: DatabaseOutbox,
) -> None:
    with pytest.raises(OutboxError, match=r"^SQLite \(database\.url\): .*not valid UTF-8$"):
        await outbox.reset(A, key="\ud800")


@pytest.mark.parametrize(
    "ids", ["id INTEGER PRIMARY KEY", "number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT"]
)
async def test_ids_that_could_be_used_again_are_refused(tmp_path: Path, ids: str) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            f"CREATE TABLE outbox ({ids}, create_time, topic, key, value,"
            " header_keys, header_values, leader_id)"
        )
    outbox = open_outbox(DatabaseSettings(f"sqlite:///{path}"))
    with pytest.raises(ConfigError, match=r"^database\.columns\.id: .*AUTOINCREMENT"):
        await outbox.check()
    await outbox.dispose()
