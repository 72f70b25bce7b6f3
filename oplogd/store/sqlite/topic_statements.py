"""The SQL statements of the topics."""

from oplogd.message_id import MAX_SEQUENCE, SEQUENCE_BITS
from oplogd.store.numbers import MAX_LOG, number_of
from oplogd.store.sqlite.template import READ_CHARACTERS, search, steps
from oplogd.store.topics import MAX_OFFSET, EntryKind

_OFFSET_BITS = MAX_OFFSET.bit_length()
# The place before all entries with the number of a log.
BASE = f"((log & {MAX_LOG}) << {_OFFSET_BITS})"
STAMPS_PER_MS = MAX_SEQUENCE + 1
MAX_STAMP = (1 << 63) - 1

# --- Catalogue ---

# Topics without a row of rules have the default ones.
_TOPIC = """
    SELECT log, namespace, name, ttl, coalesce(is_on, 1), timeout, max_bytes
    FROM topics LEFT JOIN pointer_rules USING (log) LEFT JOIN topic_sizes USING (log)
"""
FIND = f"{_TOPIC} WHERE namespace = ? AND name = ?"
# A limit of -1: all.
IN_NAMESPACE = f"{_TOPIC} WHERE namespace = :namespace AND name > :after ORDER BY name LIMIT :limit"
NAMESPACES = """
    SELECT namespace, count(*) FROM topics
    WHERE namespace > ? GROUP BY namespace ORDER BY namespace LIMIT ?
"""
CURRENT = f"""
    {_TOPIC} WHERE log IN (SELECT value FROM json_each(?)) AND name IS NOT NULL
"""
EXIST = "SELECT EXISTS (SELECT 1 FROM topics)"
COUNT = "SELECT count(*) FROM topics WHERE name IS NOT NULL"
COUNT_NUMBERS = "SELECT count(*) FROM topics"
CATALOGUE = "SELECT ttl, version, last_log, ended_stamp FROM catalogue"
COUNT_CHANGE = "UPDATE catalogue SET version = version + 1"
USE_LOG = "UPDATE catalogue SET last_log = ?"
SET_DEFAULT_TTL = "UPDATE catalogue SET ttl = ?"
CREATE = """
    INSERT INTO topics VALUES (:log, :namespace, :name, :ttl, :begin, :stamp, :begin, :stamp)
"""
# The first log from :log on whose number no topic has, or the last one of some that were looked at.
_IN_USE = f"SELECT 1 FROM topics WHERE (log & {MAX_LOG}) = (candidate.log & {MAX_LOG})"
NEXT_LOG = f"""
    WITH RECURSIVE candidate (log) AS (
        SELECT :log UNION ALL SELECT log + 1 FROM candidate
        WHERE NOT log & {MAX_LOG} OR EXISTS ({_IN_USE}) LIMIT :limit
    )
    SELECT log, log & {MAX_LOG} AND NOT EXISTS ({_IN_USE})
    FROM candidate ORDER BY log DESC LIMIT 1
"""
SET_TTL = "UPDATE topics SET ttl = ? WHERE log = ?"
SET_RULES = "REPLACE INTO pointer_rules VALUES (?, ?, ?)"
RESET_RULES = "DELETE FROM pointer_rules WHERE log = ?"
WITH_DEFAULT_TTL = "SELECT log FROM topics WHERE name IS NOT NULL AND ttl IS NULL"
END = """
    UPDATE catalogue
    SET ended_stamp = max(ended_stamp, (SELECT head_stamp + 1 FROM topics WHERE log = ?))
"""
UNNAME = "UPDATE topics SET namespace = NULL, name = NULL WHERE log = ?"
SET_FLOOR = (
    "UPDATE topics SET floor = :floor, floor_stamp = :stamp WHERE log = :log AND floor < :floor"
)

# --- Append ---

# One statement numbers and appends messages of any number of topics: `[[log, [[ttl in ms, data],
# …]], …]`. Further members of a message are ignored. `placing` tells afterwards where they went;
# topics that were deleted are not in it. `bounded`: neither are those that store more than their
# bound in bytes. Another statement would take the GIL back from the event loop.
# The unary plus lets SQLite look up topics by log, not scan them.
HAS_ROOM = """AND NOT (NEW.bounded AND EXISTS (
            SELECT 1 FROM topic_sizes INDEXED BY topics_over_bound
            WHERE octets > max_bytes AND topic_sizes.log IN (0, topics.log)
        ))"""
APPENDER = f"""
    CREATE TEMP TABLE IF NOT EXISTS placing (
        log INTEGER PRIMARY KEY, head INTEGER NOT NULL, first INTEGER NOT NULL,
        count INTEGER NOT NULL
    );
    CREATE TEMP VIEW messages AS
    SELECT 0 AS stamp, '[[1, [[null, "data"]]]]' AS body, 'message' AS kind, 0 AS bounded;
    CREATE TEMP TRIGGER append_messages INSTEAD OF INSERT ON messages BEGIN
        DELETE FROM placing;
        INSERT INTO placing
        SELECT log, head, max(NEW.stamp, head_stamp + 1), json_array_length(value, '$[1]')
        FROM json_each(NEW.body) CROSS JOIN topics ON log = json_extract(value, '$[0]')
        WHERE name IS NOT NULL {HAS_ROOM};
        INSERT INTO entries
        SELECT {BASE} + head + 1 + given.key, first + given.key,
        NEW.kind, json_extract(given.value, '$[1]'),
        coalesce((first + given.key >> {SEQUENCE_BITS}) + json_extract(given.value, '$[0]'), 0)
        FROM json_each(NEW.body) AS batch
        CROSS JOIN placing ON log = json_extract(batch.value, '$[0]')
        CROSS JOIN json_each(batch.value, '$[1]') AS given;
        UPDATE topics SET head = placing.head + count, head_stamp = first + count - 1
        FROM placing WHERE topics.log = +placing.log;
    END;
"""
APPEND = "INSERT INTO messages VALUES (?, ?, ?, ?)"
PLACING = "SELECT json_group_array(json_array(log, head, first)) FROM placing"

# --- Read and locate ---

# The least stamp that the time to live allows.
_OLDEST = f"(:now - 1000 * coalesce(topics.ttl, catalogue.ttl)) * {STAMPS_PER_MS}"
# Floor and head are places.
_BOUNDS = f"""bounds (floor, floor_stamp, head, head_stamp, oldest) AS (
        SELECT :base + floor, floor_stamp, :base + head, head_stamp,
        {_OLDEST}
        FROM topics CROSS JOIN catalogue WHERE log = :log AND name IS NOT NULL
    )"""


def base(log: int) -> int:
    """Return the place before all entries with the number of a log: see ``BASE``."""
    return number_of(log) << _OFFSET_BITS


def _front(after: str) -> str:
    """Return the SQL that finds the newest entry that is gone, at least ``after``.

    It searches only if the entry that follows is gone.
    """
    start = f"""SELECT low, iif(
            (SELECT stamp < oldest FROM entries WHERE place = low + 1), head, low), oldest
        FROM (SELECT {after} AS low, head, oldest FROM bounds)"""
    return search("front", "entries", "place", "stamp", start=start)


_AT = search(
    "at",
    "entries",
    "place",
    "stamp",
    start="SELECT (SELECT max(low) FROM front), head, :stamp + 1 FROM bounds",
)


def _stamp_at(place: str) -> str:
    return f"iif({place} = floor, floor_stamp, (SELECT stamp FROM entries WHERE place = {place}))"


READ = f"""
    WITH RECURSIVE {_BOUNDS}, {_front("max(:base + :after, floor)")},
    {steps("entries", "place", ("stamp", "kind", "expires"), "(SELECT max(low) + 1 FROM front)")}
    SELECT (
        SELECT group_concat(
            (place - :base) || ' ' || stamp || ' ' || abs(expires) || ' ' || iif(
                expires AND abs(expires) < :now, '{EntryKind.VOID} ', kind || ' ' || data
            ), char(10)
        ) FROM step
    ), {_stamp_at(":base + :after")} >> {SEQUENCE_BITS}, :base + :after <= head FROM bounds
"""
LOCATE = f"""
    WITH RECURSIVE {_BOUNDS}, {_front("floor")}, {_AT},
    places (front, at) AS (SELECT (SELECT max(low) FROM front), (SELECT max(low) FROM at))
    SELECT front - :base, {_stamp_at("front")}, head - :base, head_stamp, at - :base,
    {_stamp_at("at")}, coalesce((SELECT stamp FROM purges WHERE log = :log), 0)
    FROM bounds CROSS JOIN places
"""


def _next_record(after: str) -> str:
    return f"""records.txn = :txn AND records.lsn = (
            SELECT lsn FROM records CROSS JOIN entries USING (place)
            WHERE txn = :txn AND lsn > {after} AND lsn <= :last AND log = :log ORDER BY lsn LIMIT 1
        )"""


# Passes over records whose entries are gone.
EXPAND = f"""
    WITH RECURSIVE found (lsn, stamp, expires, data, size) AS (
        SELECT lsn, stamp, expires, entries.data, length(entries.data)
        FROM records CROSS JOIN entries USING (place) WHERE {_next_record(":after")}
        UNION ALL
        SELECT records.lsn, entries.stamp, entries.expires, entries.data,
        size + length(entries.data)
        FROM found CROSS JOIN records CROSS JOIN entries USING (place)
        WHERE size + length(entries.data) <= {READ_CHARACTERS} AND {_next_record("found.lsn")}
        LIMIT :limit
    )
    SELECT (
        SELECT group_concat(
            lsn || ' ' || ends || ' ' || iif(ends AND ends < :now, '', data), char(10)
        ) FROM (
            SELECT lsn, data,
            iif(expires, :ms + abs(expires) - (stamp >> {SEQUENCE_BITS}), 0) AS ends FROM found
        )
    ) FROM topics WHERE log = :log AND name IS NOT NULL
"""

# --- News ---

VERSION = "SELECT version FROM catalogue"
DATA_VERSION = "PRAGMA data_version"
NEWS = """
    SELECT json_group_array(CAST(given.key AS INTEGER)) FROM json_each(?) AS given
    LEFT JOIN topics ON log = CAST(given.key AS INTEGER)
    WHERE name IS NULL OR head > given.value
"""

# --- Sweep ---

EXPIRED = f"""
    SELECT log FROM topics CROSS JOIN catalogue CROSS JOIN entries ON place = (
        SELECT min(place) FROM entries
        WHERE place > {BASE} AND place <= {BASE} + head
    )
    WHERE name IS NOT NULL AND (place <= {BASE} + floor OR stamp < {_OLDEST})
"""
DELETED = "SELECT log FROM topics WHERE name IS NULL"
# Entries of transactions and PUBLISH entries stay for longer: younger ones than this.
KEEP_FROM = f"""
    SELECT max({_OLDEST}, floor_stamp) - :longer FROM topics CROSS JOIN catalogue WHERE log = :log
"""
_RANGE = "place > :base + :after AND place <= :base + :upto"
# The last of some entries.
LAST_OF_STEP = f"""
    SELECT max(place) - :base FROM (
        SELECT place FROM entries WHERE {_RANGE} ORDER BY place LIMIT :limit
    )
"""
_MARKERS = f"'{EntryKind.COMMIT}', '{EntryKind.ABORT}', '{EntryKind.PUBLISH}'"
_KINDS = f"'{EntryKind.DEFERRED}', {_MARKERS}"
MARKERS = f"""
    SELECT place, kind, data FROM entries
    WHERE {_RANGE} AND kind IN ({_MARKERS}) AND stamp < :keep_from ORDER BY place
"""
REMOVE_RECORDS = """
    DELETE FROM records WHERE txn = :txn AND lsn IN (
        SELECT lsn FROM records WHERE txn = :txn AND log = :log LIMIT :limit
    )
"""
REMOVE = f"""
    DELETE FROM entries WHERE {_RANGE} AND (kind NOT IN ({_KINDS}) OR stamp < :keep_from)
    AND place NOT IN (SELECT value FROM json_each(:staying))
"""
VOID = f"""
    UPDATE entries SET kind = '{EntryKind.VOID}', data = '', expires = 0 WHERE place IN (
        SELECT place FROM entries WHERE expires > 0 AND expires < :now LIMIT :limit
    )
"""
FORGET = "DELETE FROM topics WHERE log = ?"
HEAD = "SELECT head FROM topics WHERE log = ?"
FORGET_PURGE = "DELETE FROM purges WHERE log = ?"
