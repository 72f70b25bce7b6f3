"""The repair of topics whose stamps are ahead, as a part of a new epoch.

Entries keep their offsets, and get stamps of the present. Their own times to live move along, so
they begin again with the topic's. Positions in the old stamps are past the head by far: a reader
that has one gets a gap. Answers to repeated commits keep the old ids.
"""

import sqlite3

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.message_id import stamp
from oplogd.store.sqlite.topic_statements import OFFSET_BITS

_AHEAD = "SELECT log FROM topics WHERE head_stamp > ? AND name IS NOT NULL"
_PLACES = f"place > :log << {OFFSET_BITS} AND place < :log + 1 << {OFFSET_BITS}"
_FIRST = f"SELECT min(place) FROM entries WHERE {_PLACES} AND stamp > :now"
_BEFORE = f"""
    SELECT coalesce(max(stamp), (SELECT min(floor_stamp, :now) FROM topics WHERE log = :log))
    FROM entries WHERE {_PLACES} AND place < :first
"""
_STAMP = ":base + place - :first"
_MOVED = f"(({_STAMP}) >> 16) - (stamp >> 16)"
_REPAIR = (
    # Positive ends stay positive, negative ones negative; 0 stays 0.
    f"""
    UPDATE entries SET stamp = {_STAMP}, expires = CASE
        WHEN expires > 0 THEN max(1, expires + {_MOVED})
        WHEN expires < 0 THEN min(-1, expires - ({_MOVED})) ELSE 0 END
    WHERE {_PLACES} AND place >= :first
    """,
    """
    UPDATE pointer_entries SET stamp = (
        SELECT stamp FROM entries WHERE entries.place = pointer_entries.place
    ) WHERE log = :log AND place >= :first AND place IN (SELECT place FROM entries)
    """,
    *(
        f"""
        UPDATE {table} SET {name}_stamp = coalesce((
            SELECT stamp FROM entries WHERE place = (:log << {OFFSET_BITS}) + {name}_offset
        ), {name}_stamp) WHERE log = :log AND {name}_stamp > :now
        """
        for table, name in (
            ("pointers", "publish"),
            ("pointers", "end"),
            ("txns", "begin"),
            ("txns", "commit"),
        )
    ),
)
_SET_HEAD = f"""
    UPDATE topics SET floor_stamp = min(floor_stamp, :base - 1), head_stamp = coalesce((
        SELECT stamp FROM entries WHERE place = (log << {OFFSET_BITS}) + head
    ), :base) WHERE log = :log
"""
_FORGET = (
    "UPDATE catalogue SET ended_stamp = min(ended_stamp, :now)",
    "UPDATE catalogue SET version = version + 1",
    "DELETE FROM written",
    "DELETE FROM ended_ahead",
)


def repair(db: sqlite3.Connection, now: int) -> None:
    """Give the entries that are ahead stamps of the present, in the caller's transaction."""
    present = stamp(now, 0)
    for (log,) in db.execute(_AHEAD, (stamp(now + MAX_LEAD_MS, 0),)).fetchall():
        given = {"log": log, "now": present}
        (first,) = db.execute(_FIRST, given).fetchone()
        if first is None:
            db.execute(_SET_HEAD, given | {"base": present})
            continue
        given["first"] = first
        (before,) = db.execute(_BEFORE, given).fetchone()
        given["base"] = max(present, before + 1)
        for statement in _REPAIR:
            db.execute(statement, given)
        db.execute(_SET_HEAD, given)
    for statement in _FORGET:
        db.execute(statement, {"now": present})
