"""The SQL statements of the topics."""

from oplogd.clock.ages import MAX_LEAD_MS
from oplogd.model.message_id import MAX_SEQUENCE, SEQUENCE_BITS
from oplogd.store.numbers import MAX_LOG, number_of
from oplogd.store.sqlite.file.ages import date, oldest
from oplogd.store.sqlite.file.template import READ_CHARACTERS, search, steps
from oplogd.store.topics import MAX_OFFSET, EntryKind

_OFFSET_BITS = MAX_OFFSET.bit_length()
# The place before all entries with the number of a log.
BASE = f"((log & {MAX_LOG}) << {_OFFSET_BITS})"
STAMPS_PER_MS = MAX_SEQUENCE + 1
MAX_STAMP = (1 << 63) - 1

# --- Append ---

# A stamp past the present one plus this is ahead: then `dated` has the time of writing.
# `present_ms()` asks the clock again: the process may have stood since it read `NEW.stamp`.
MAX_LEAD = MAX_LEAD_MS << SEQUENCE_BITS

# One statement numbers and appends messages of any number of topics: `[[log, [[ttl in ms, data],
# …]], …]`. `placing` has their places afterwards; deleted topics are not in it. `bounded`: neither
# are those over their bound in bytes. `lone`: the data of the only message, outside of JSON.
# Another statement would take the GIL from the event loop. The unary plus lets SQLite look up
# topics by log, not scan them.
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
    SELECT 0 AS stamp, '[[1, [[null, "data"]]]]' AS body, 'message' AS kind, 0 AS bounded,
    NULL AS lone;
    CREATE TEMP TRIGGER append_messages INSTEAD OF INSERT ON messages BEGIN
        DELETE FROM placing;
        INSERT INTO placing
        SELECT log, head, max(NEW.stamp, head_stamp + 1), json_array_length(value, '$[1]')
        FROM json_each(NEW.body) CROSS JOIN topics ON log = json_extract(value, '$[0]')
        WHERE name IS NOT NULL {HAS_ROOM};
        INSERT INTO entries
        SELECT {BASE} + head + 1 + given.key, first + given.key,
        NEW.kind, coalesce(NEW.lone, json_extract(given.value, '$[1]')),
        coalesce((first + given.key >> {SEQUENCE_BITS}) + json_extract(given.value, '$[0]'), 0)
        FROM json_each(NEW.body) AS batch
        CROSS JOIN placing ON log = json_extract(batch.value, '$[0]')
        CROSS JOIN json_each(batch.value, '$[1]') AS given;
        UPDATE topics SET head = placing.head + count, head_stamp = first + count - 1
        FROM placing WHERE topics.log = +placing.log;
        INSERT INTO dated SELECT log & {MAX_LOG}, head + count, head + 1, present_ms() FROM placing
        WHERE first > NEW.stamp + {MAX_LEAD}
        AND first > (present_ms() << {SEQUENCE_BITS}) + {MAX_LEAD};
    END;
"""
APPEND = "INSERT INTO messages VALUES (?, ?, ?, ?, ?)"
PLACING = "SELECT json_group_array(json_array(log, head, first)) FROM placing"

# --- Read and locate ---


def _aged(longer: str = "", where: str = "") -> str:
    """Return the SQL of topics with the least time within their time to live, or more."""
    return f"""aged AS MATERIALIZED (
        SELECT log, floor, floor_stamp, head, head_stamp,
        {oldest(f"(:now - 1000 * coalesce(topics.ttl, catalogue.ttl) {longer})")} AS oldest_ms
        FROM topics CROSS JOIN catalogue WHERE name IS NOT NULL {where})"""


_OF_LOG = "AND log = :log"
_OLDEST = f"oldest_ms * {STAMPS_PER_MS}"
_IS_AHEAD = f"stamp > (:now << {SEQUENCE_BITS}) + {MAX_LEAD}"


def _retained(low: str, oldest_ms: str) -> str:
    """Return the SQL of a column of the first row of `dated` past an offset that is not gone."""
    return f"""FROM dated AS retained WHERE retained.number = aged.log & {MAX_LOG}
        AND retained.offset > {low}
        AND retained.ms >= {oldest_ms} ORDER BY retained.offset LIMIT 1"""


def _passed(low: str, oldest_ms: str) -> str:
    """Return the SQL of the offset up to which entries are gone although their stamps are ahead.

    ``low``: an offset that is gone. Entries up to the first one written later stay. The stamp must
    still be ahead: see ``Present.date``.
    """
    return f"""iif(head_{_IS_AHEAD}, coalesce((
        SELECT offset FROM dated WHERE dated.number = aged.log & {MAX_LOG} AND offset = (
            SELECT max(older.offset) FROM dated AS older
            WHERE older.number = aged.log & {MAX_LOG} AND older.offset > {low}
            AND older.offset < coalesce((
                SELECT retained.offset {_retained(low, oldest_ms)}
            ), {MAX_OFFSET})
        ) AND NOT EXISTS (
            SELECT 1 FROM entries
            WHERE place = (dated.number << {_OFFSET_BITS}) + offset AND NOT {_IS_AHEAD}
        )
    ), 0), 0)"""


_PASSED = _passed("floor", "oldest_ms")
# Floor, head and passed are places. So is `last`: entries past it stay.
_BOUNDS = f"""{_aged(where=_OF_LOG)},
    bounds (floor, floor_stamp, head, head_stamp, oldest, passed, last) AS (
        SELECT :base + floor, floor_stamp, :base + head, head_stamp,
        {_OLDEST}, :base + {_PASSED},
        :base + coalesce((SELECT retained.first - 1 {_retained("floor", "oldest_ms")}), head)
        FROM aged
    )"""


def base(log: int) -> int:
    """Return the place before all entries with the number of a log: see ``BASE``."""
    return number_of(log) << _OFFSET_BITS


def _front(after: str) -> str:
    """Return the SQL of the newest entry that is gone, at least ``after``.

    It searches only if the next entry is gone.
    """
    start = f"""SELECT low, iif(
            low < last AND (SELECT stamp < oldest FROM entries WHERE place = low + 1), last, low
        ), oldest FROM (SELECT {after} AS low, last, oldest FROM bounds)"""
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


def is_over(expires: str) -> str:
    """Return the SQL of whether an entry is past its own time to live.

    An entry whose stamp is ahead is judged by its time of writing elsewhere.
    """
    ms = f"(entries.stamp >> {SEQUENCE_BITS})"
    return f"""({expires} < :now AND {expires} - {ms} + {date(ms)} < :now AND NOT EXISTS (
            SELECT 1 FROM dated WHERE dated.number = place >> {_OFFSET_BITS}
            AND offset >= place & {MAX_OFFSET} AND first <= place & {MAX_OFFSET}
            AND {expires} - {ms} + {date("dated.ms")} >= :now
        ))"""


READ = f"""
    WITH RECURSIVE {_BOUNDS}, {_front("max(:base + :after, floor, passed)")},
    {steps("entries", "place", ("stamp", "kind", "expires"), "(SELECT max(low) + 1 FROM front)")}
    SELECT (
        SELECT group_concat(
            (place - :base) || ' ' || stamp || ' ' || abs(expires) || ' ' || iif(
                expires AND {is_over("abs(expires)")}, '{EntryKind.VOID} ', kind || ' ' || data
            ), char(10)
        ) FROM step AS entries
    ), {_stamp_at(":base + :after")} >> {SEQUENCE_BITS}, :base + :after <= head, (
        SELECT group_concat(first || ' ' || offset || ' ' || ms, char(10)) FROM (
            SELECT first, offset, ms FROM dated
            WHERE number = :log & {MAX_LOG} AND offset > :after AND EXISTS (SELECT 1 FROM step)
            ORDER BY offset LIMIT :limit
        )
    ) FROM bounds
"""
LOCATE = f"""
    WITH RECURSIVE {_BOUNDS}, {_front("max(floor, passed)")}, {_AT},
    places (front, at) AS (SELECT (SELECT max(low) FROM front), (SELECT max(low) FROM at))
    SELECT front - :base, {_stamp_at("front")}, head - :base, head_stamp, at - :base,
    {_stamp_at("at")}, coalesce((SELECT stamp FROM purges WHERE log = :log), 0)
    FROM bounds CROSS JOIN places
"""
REPAIRED = "SELECT first, last FROM repaired"


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

# --- Sweep ---

SET_FLOOR = (
    "UPDATE topics SET floor = :floor, floor_stamp = :stamp WHERE log = :log AND floor < :floor"
)
EXIST = "SELECT EXISTS (SELECT 1 FROM topics)"
EXPIRED = f"""
    WITH {_aged()}
    SELECT log FROM aged CROSS JOIN entries ON place = (
        SELECT min(place) FROM entries
        WHERE place > {BASE} AND place <= {BASE} + head
    )
    WHERE place <= {BASE} + max(floor, {_PASSED}) OR stamp < {_OLDEST}
"""
DELETED = "SELECT log FROM topics WHERE name IS NULL"
# Entries of transactions and PUBLISH entries stay for longer: younger ones than this.
KEEP_FROM = f"""
    WITH {_aged("- :longer", _OF_LOG)}, floors (ms) AS (
        SELECT {date(f"(floor_stamp >> {SEQUENCE_BITS})")} - :longer FROM aged
        WHERE NOT floor_{_IS_AHEAD}
    )
    SELECT max({_OLDEST}, coalesce((SELECT {oldest("ms")} FROM floors), 0) << {SEQUENCE_BITS},
    coalesce((
        SELECT stamp + 1 FROM entries
        WHERE place > {BASE} AND place <= {BASE} + {_passed("0", "oldest_ms")}
        ORDER BY place DESC LIMIT 1
    ), 0)) FROM aged
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
        SELECT lsn FROM records WHERE txn = :txn AND log = :log ORDER BY lsn LIMIT :limit
    )
"""
REMOVE = f"""
    DELETE FROM entries
    WHERE {_RANGE} AND (kind NOT IN ({_KINDS}) OR kind IN ({_MARKERS}) AND stamp < :keep_from)
    AND place NOT IN (SELECT value FROM json_each(:staying))
"""
_OLD_RECORDS = f"{_RANGE} AND kind = '{EntryKind.DEFERRED}' AND stamp < :keep_from"
HAS_OLD_RECORDS = f"SELECT EXISTS (SELECT 1 FROM entries WHERE {_OLD_RECORDS})"
# A record leaves with its COMMIT entry, however much older it is: a stop ends no transaction.
REMOVE_OLD_RECORDS = f"""
    DELETE FROM entries WHERE {_OLD_RECORDS} AND (:forgets OR NOT EXISTS (
        SELECT 1 FROM records INDEXED BY records_by_place WHERE records.place = entries.place
    ))
"""
# The entries of the records for REMOVE_RECORDS.
REMOVE_DEFERRED = """
    DELETE FROM entries WHERE place IN (
        SELECT place FROM records WHERE txn = :txn AND log = :log ORDER BY lsn LIMIT :limit
    )
"""
VOID = f"""
    UPDATE entries SET kind = '{EntryKind.VOID}', data = '', expires = 0 WHERE place IN (
        SELECT place FROM entries WHERE expires > 0 AND {is_over("expires")} LIMIT :limit
    )
"""
HEAD = "SELECT head FROM topics WHERE log = ?"
FORGET = (
    "DELETE FROM topics WHERE log = ?",
    "DELETE FROM purges WHERE log = ?",
    f"DELETE FROM dated WHERE number = ? & {MAX_LOG}",
)
FORGET_DATED = f"""
    WITH {_aged("- 2 * :longer")}
    DELETE FROM dated WHERE coalesce((
        SELECT offset <= floor AND ms < oldest_ms FROM aged
        WHERE aged.log & {MAX_LOG} = dated.number
    ), 1)
"""
