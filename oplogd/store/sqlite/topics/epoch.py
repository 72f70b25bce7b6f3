"""The repair of topics whose stamps are ahead, as a part of a new epoch.

Entries keep their offsets, and get stamps of the present. Their own times to live move along, so
they begin again with the topic's. The span of the old stamps is stored: a reader with an id in it
gets a gap unless an entry has this id. Answers to repeated commits keep the old ids.
"""

import sqlite3

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.model.message_id import stamp
from oplogd.store.numbers import MAX_LOG
from oplogd.store.sqlite.topics.statements import base
from oplogd.store.topics import MAX_OFFSET

# Ids of topics deleted meanwhile are among them.
_SPAN = """
    INSERT INTO repaired SELECT :ms, newest >> 16 FROM (SELECT max(
        coalesce((SELECT max(head_stamp) FROM topics), 0),
        coalesce((SELECT max(stamp) FROM ended_ahead), 0),
        (SELECT ended_stamp FROM catalogue)
    ) AS newest) WHERE newest > :now
"""
_AHEAD = "SELECT log FROM topics WHERE head_stamp > ? AND name IS NOT NULL"
_PLACES = f"place > :origin AND place <= :origin + {MAX_OFFSET}"
_FIRST = f"SELECT min(place) FROM entries WHERE {_PLACES} AND stamp > :now"
_BEFORE = f"""
    SELECT coalesce(max(stamp), (SELECT min(floor_stamp, :now) FROM topics WHERE log = :log))
    FROM entries WHERE {_PLACES} AND place < :first
"""
_STAMP = ":base + place - :first"
_MOVED = f"(({_STAMP}) >> 16) - (stamp >> 16)"
_REPAIR = (
    # Readers from before a forced rollback learn of it as before.
    f"""
    UPDATE purges SET stamp = coalesce((
        SELECT {_STAMP} FROM entries
        WHERE {_PLACES} AND place >= :first AND entries.stamp >= purges.stamp
        ORDER BY place LIMIT 1
    ), :base) WHERE log = :log AND stamp > :now
    """,
    # Positive ends stay positive, negative ones negative, 0 stays 0.
    f"""
    UPDATE entries SET stamp = {_STAMP}, expires = CASE
        WHEN expires > 0 THEN max(1, expires + {_MOVED})
        WHEN expires < 0 THEN min(-1, expires - ({_MOVED})) ELSE 0 END
    WHERE {_PLACES} AND place >= :first
    """,
    """
    UPDATE pointer_places SET stamp = (
        SELECT stamp FROM entries WHERE entries.place = pointer_places.place
    ) WHERE log = :log AND place >= :first AND place IN (SELECT place FROM entries)
    """,
    *(
        f"""
        UPDATE {table} SET {name}_stamp = coalesce((
            SELECT stamp FROM entries WHERE place = :origin + {name}_offset
        ), {name}_stamp) WHERE log = :log AND {name}_stamp > :now
        """
        for table, name in (
            ("pointers", "publish"),
            ("pointers", "end"),
            ("pointers", "late"),
            ("txns", "begin"),
            ("txns", "commit"),
        )
    ),
)
_LOWER_PURGE = "UPDATE purges SET stamp = min(stamp, :now) WHERE log = :log"
_FORGET_DATED = (
    f"DELETE FROM dated WHERE number = :log & {MAX_LOG} AND offset >= (:first & {MAX_OFFSET})"
)
_SET_HEAD = """
    UPDATE topics SET floor_stamp = min(floor_stamp, :base - 1), head_stamp = coalesce((
        SELECT stamp FROM entries WHERE place = :origin + head
    ), :base) WHERE log = :log
"""
_FORGET = (
    "UPDATE catalogue SET ended_stamp = min(ended_stamp, :now)",
    "UPDATE catalogue SET version = version + 1",
    "DELETE FROM ended_ahead",
)


def repair(db: sqlite3.Connection, now: int) -> None:
    """Give the entries that are ahead stamps of the present, in the caller's transaction."""
    present = stamp(now, 0)
    db.execute(_SPAN, {"ms": now, "now": present})
    for (log,) in db.execute(_AHEAD, (stamp(now + MAX_LEAD_MS, 0),)).fetchall():
        given = {"log": log, "origin": base(log), "now": present}
        (first,) = db.execute(_FIRST, given).fetchone()
        if first is None:
            db.execute(_SET_HEAD, given | {"base": present})
            db.execute(_LOWER_PURGE, given)
            continue
        given["first"] = first
        (before,) = db.execute(_BEFORE, given).fetchone()
        given["base"] = max(present, before + 1)
        for statement in (*_REPAIR, _FORGET_DATED):
            db.execute(statement, given)
        db.execute(_SET_HEAD, given)
    for statement in _FORGET:
        db.execute(statement, {"now": present})
