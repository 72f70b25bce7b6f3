"""The text that a leader leaves with its lease."""

import json
import os
from uuid import UUID

from oplog_relay import Blocked, DatabaseSettings, MeterRead, Table
from oplog_relay.model.note import note
from oplog_relay.model.place import OutboxPlace, conflict, place_of
from tests.kits.relay.world import NOON

_READING = MeterRead(12.34, 5, 4, 3, 2, 1.5, 1)


def _blocked(id: int, text: str = "x") -> Blocked:
    return Blocked(id, "orders", f"k{text}", f"no{text}", NOON, 2)


def test_a_note_tells_figures_and_the_oldest_blocked_keys() -> None:
    leader_id = UUID(int=1)
    text = note("host", 7, _READING, tuple(_blocked(id) for id in range(12)), leader_id)
    shown = json.loads(text)
    assert [each["id"] for each in shown.pop("blocked")] == [*range(10)]
    assert shown == {
        "host": "host",
        "pid": 7,
        "leader_id": str(leader_id),
        "in_flight": 4,
        "relayed": 5,
        "rate": 12.3,
        "backlog": 2,
        "oldest_seconds": 1.5,
        "blocked_keys": 12,
    }
    [first] = json.loads(note("host", 7, _READING, (_blocked(1),)))["blocked"]
    assert first == {
        "id": 1,
        "topic": "orders",
        "key": "kx",
        "reason": "nox",
        "attempts": 2,
        "since": "2026-01-01T12:00:00+00:00",
    }


def test_a_note_names_database_and_table_without_password() -> None:
    settings = DatabaseSettings("postgresql://me:secret@db/shop?password=x", Table("s.outbox"))
    shown = json.loads(note("host", 7, _READING, (), None, place_of(settings, "postgresql 1 a")))
    assert shown["database"] == "postgresql://db/shop"
    assert (shown["table"], shown["outbox"]) == ("s.outbox", "postgresql 1 a")
    assert "outbox" not in place_of(settings).members()


def test_a_note_of_another_outbox_is_a_conflict_and_one_that_is_not_known_is_none() -> None:
    mine = OutboxPlace("sqlite:///a.db", "outbox", "sqlite 1 outbox")
    theirs = {**mine._replace(identity="sqlite 2 outbox").members(), "host": "h", "pid": 7}
    assert conflict("orders", theirs, mine) == (
        "the lease orders is held by h (process 7) for table outbox of sqlite:///a.db, so no row of"
        " table outbox of sqlite:///a.db is sent: give one of the two groups another name"
    )
    same = mine._replace(database="sqlite:////srv/a.db").members()
    assert conflict("orders", same, mine) is None
    for note_, place in (({}, mine), (theirs, mine._replace(identity="")), ({"outbox": ""}, mine)):
        assert conflict("orders", note_, place) is None


def test_a_note_leaves_out_keys_that_do_not_fit_into_8_kib() -> None:
    text = note("host", 7, _READING, tuple(_blocked(id, "ä" * 300) for id in range(9)))
    assert len(text.encode()) <= 8192
    shown = json.loads(text)
    assert (len(shown["blocked"]), shown["blocked_keys"]) == (2, 9)
    assert len(shown["blocked"][0]["reason"]) == 200


def test_keys_that_are_not_utf_8_look_different_in_a_note() -> None:
    keys = [os.fsdecode(each) for each in (b"k\xff", b"k\xfe", b"k\\xff\xff")]
    blocked = tuple(_blocked(1)._replace(topic=key, key=key) for key in (*keys, "C:\\a"))
    listed = json.loads(note("host", 7, _READING, blocked))["blocked"]
    told = [r"k\xff", r"k\xfe", r"k\\xff\xff", r"C:\a"]
    assert [each["key"] for each in listed] == [each["topic"] for each in listed] == told
