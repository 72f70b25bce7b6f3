"""The SQL statements of pointers."""

from oplogd.model.message_id import SEQUENCE_BITS
from oplogd.model.pointer import Decision
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.template import READ_CHARACTERS
from oplogd.store.sqlite.topics.statements import is_over
from oplogd.store.topics import EntryKind

OPEN = "open"

# --- Rows ---

_COLUMNS = """state, begun, expires, has_entries, last, published, records, octets,
    publish_offset, publish_stamp, end_offset, end_stamp, late_offset, late_stamp"""
# A row without a state if the pointer is not known. No row if the topic was deleted.
FIND = f"""
    SELECT coalesce(is_on, 1), timeout, {_COLUMNS} FROM topics
    LEFT JOIN pointer_rules ON pointer_rules.log = topics.log
    LEFT JOIN pointers ON pointers.log = topics.log AND pointer = :pointer
    WHERE topics.log = :log AND name IS NOT NULL
"""
SAVE = f"INSERT OR REPLACE INTO pointers VALUES ({', '.join(16 * '?')})"
EXISTS = "SELECT EXISTS (SELECT 1 FROM topics WHERE log = ? AND name IS NOT NULL)"
DECISIONS = f"""
    SELECT pointer, state FROM pointers
    WHERE log = ? AND pointer IN (SELECT value FROM json_each(?)) AND state <> '{OPEN}'
"""
# The planner would read all pointers of the topic, of which most are decided.
_OPEN = "pointers INDEXED BY open_pointers"
_SELECT = f"SELECT log, pointer, begun, expires, has_entries FROM {_OPEN} WHERE state = '{OPEN}'"
SELECT = f"""{_SELECT}
    AND log = :log AND (begun, pointer) > (:begun, :after) ORDER BY begun, pointer LIMIT :limit
"""
SELECT_ALL = f"""{_SELECT}
    AND (begun, pointer, log) > (:begun, :after, :log) ORDER BY begun, pointer, log LIMIT :limit
"""
STATS = f"""
    SELECT count(*), coalesce(min(begun), 0) FROM {_OPEN} CROSS JOIN topics USING (log)
    WHERE state = '{OPEN}' AND name IS NOT NULL
"""
OVERDUE = f"""
    SELECT log, pointer, records FROM {_OPEN} CROSS JOIN topics USING (log)
    WHERE state = '{OPEN}' AND expires < :horizon AND {age_statements.is_over("expires")}
    AND name IS NOT NULL ORDER BY expires LIMIT :limit
"""
# The clock was set back since they began.
_BEGUN_AHEAD = f"""FROM {_OPEN}
    WHERE state = '{OPEN}' AND expires > :ahead AND begun > :ahead"""
DATE_AGAIN = f"""
    UPDATE pointers SET begun = :now, expires = :now + expires - begun
    WHERE (log, pointer) IN (SELECT log, pointer {_BEGUN_AHEAD})
"""
WORK = f"""
    SELECT EXISTS ({OVERDUE}) OR EXISTS (SELECT 1 {_BEGUN_AHEAD})
"""

TIMED_OUT = f"""
    SELECT pointer, begun, end_stamp FROM pointers INDEXED BY timed_out_pointers
    WHERE state = '{Decision.TIMED_OUT}' AND late_offset IS NULL AND has_entries AND log = :log
    ORDER BY begun, pointer LIMIT :limit
"""

# --- Entries ---

ADD_ENTRIES = """
    INSERT INTO pointer_places
    SELECT :log, :pointer, stamp, place FROM entries
    WHERE place >= :first AND place < :first + :count
"""
_OF_POINTER = "log = :log AND pointer = :pointer"
_GIVEN = "AND pointer_places.stamp IN (SELECT value FROM json_each(:stamps))"
_KINDS = f"'{EntryKind.DIRECT}', '{EntryKind.PUBLISH}', '{EntryKind.LATE}'"


def entries(*, given: bool) -> str:
    """Return the SQL of the entries without the void ones: all, or those with the stamps given.

    Three columns: places as a JSON array, stamps of the PUBLISH entries as a JSON array, their data
    by lines.
    """
    publish = f"FILTER (WHERE kind = '{EntryKind.PUBLISH}')"
    return f"""
        SELECT json_group_array(place), json_group_array(entries.stamp) {publish},
        group_concat(data, char(10)) {publish}
        FROM pointer_places CROSS JOIN entries USING (place)
        WHERE {_OF_POINTER} {_GIVEN * given} AND kind IN ({_KINDS})
    """


def remove_entries(*, given: bool) -> str:
    """Return the SQL to remove the entries, all or those given, from their index."""
    return f"DELETE FROM pointer_places WHERE {_OF_POINTER} {_GIVEN * given}"


_MARKER = "substr(entries.data, length(:pointer) + 2)"
# The readable entries. Then the messages of such entries, with the time to live left to each.
STANDING = f"""
    SELECT place, length(data) FROM pointer_places CROSS JOIN entries USING (place)
    WHERE {_OF_POINTER} AND place > :front AND kind IN ({_KINDS}) ORDER BY place
"""
_STORED_END = f"(ttl + (entries.stamp >> {SEQUENCE_BITS}))"
MESSAGES = f"""
    SELECT iif(expires, expires - (entries.stamp >> {SEQUENCE_BITS}), NULL) AS ttl,
    substr(entries.data, length(:pointer) + 2), expires AS ends, place, 0 AS written
    FROM json_each(:places) AS given CROSS JOIN entries ON place = given.value
    WHERE kind = '{EntryKind.DIRECT}' AND NOT (ends AND {is_over("expires")})
    UNION ALL
    SELECT ttl, stored.data, coalesce({_STORED_END}, 0) AS ends,
    place, stored.stamp AS written
    FROM json_each(:places) AS given CROSS JOIN entries ON place = given.value
    CROSS JOIN stored ON log = :log AND pointer = :pointer
    AND stored.stamp > coalesce(json_extract({_MARKER}, '$.after'), 0)
    AND stored.stamp <= json_extract({_MARKER}, '$.last')
    WHERE kind = '{EntryKind.PUBLISH}' AND NOT (ends AND {is_over(_STORED_END)})
    ORDER BY place, written
"""
PURGE = """
    INSERT INTO purges SELECT :log, stamp FROM entries WHERE place = :place
    ON CONFLICT (log) DO UPDATE SET stamp = max(stamp, excluded.stamp)
"""

VOID = f"""
    UPDATE entries SET kind = '{EntryKind.VOID}', data = '', expires = 0
    WHERE place IN (SELECT value FROM json_each(?)) AND kind <> '{EntryKind.VOID}'
"""

# --- Stored messages ---

# `[[write stamp, ttl in ms, data as a string], …]`
STORE = """
    INSERT INTO stored
    SELECT :log, :pointer, json_extract(value, '$[0]'), json_extract(value, '$[2]'),
    json_extract(value, '$[1]') FROM json_each(:body)
"""
# A SELECT copies a value once more.
STORE_LARGE = "INSERT INTO stored (log, pointer, stamp, ttl, data) VALUES (?, ?, ?, ?, ?)"
REMOVE_STORED = f"DELETE FROM stored WHERE {_OF_POINTER} AND stamp > :after AND stamp <= :last"


def _next_stored(after: str) -> str:
    return f"""stored.log = :log AND stored.pointer = :txn AND stored.stamp = (
            SELECT stamp FROM stored WHERE log = :log AND pointer = :txn
            AND stamp > {after} AND stamp <= :last ORDER BY stamp LIMIT 1
        )"""


EXPAND = f"""
    WITH RECURSIVE found (stamp, ttl, data, size) AS (
        SELECT stamp, ttl, data, length(data) FROM stored WHERE {_next_stored(":after")}
        UNION ALL
        SELECT stored.stamp, stored.ttl, stored.data, size + length(stored.data)
        FROM found CROSS JOIN stored
        WHERE size + length(stored.data) <= {READ_CHARACTERS} AND {_next_stored("found.stamp")}
        LIMIT :limit
    )
    SELECT (
        SELECT group_concat(
            stamp || ' ' || ends || ' ' || iif(ends AND ends < :now, '', data), char(10)
        ) FROM (SELECT stamp, data, coalesce(:ms + ttl, 0) AS ends FROM found)
    ) FROM topics WHERE log = :log AND name IS NOT NULL
"""

# --- Sweep ---

REMOVE_SOME_STORED = f"""
    DELETE FROM stored WHERE {_OF_POINTER} AND stamp IN (
        SELECT stamp FROM stored
        WHERE {_OF_POINTER} AND stamp > :after AND stamp <= :last LIMIT :limit
    )
"""
REMOVE_SOME_ENTRIES = f"""
    DELETE FROM pointer_places WHERE {_OF_POINTER} AND stamp IN (
        SELECT stamp FROM pointer_places WHERE {_OF_POINTER} LIMIT :limit
    )
"""
SOME_PLACES = f"""
    SELECT json_group_array(place) FILTER (WHERE kind IN ({_KINDS})) FROM (
        SELECT place FROM pointer_places WHERE {_OF_POINTER} ORDER BY stamp LIMIT :limit
    ) CROSS JOIN entries USING (place)
"""
FORGET = f"DELETE FROM pointers WHERE {_OF_POINTER}"
ABORTED = f"""
    SELECT log, pointer FROM pointers INDEXED BY aborted_pointers CROSS JOIN topics USING (log)
    WHERE state = '{Decision.ABORTED}' AND has_entries AND name IS NOT NULL LIMIT ?
"""
# Whether messages of a late commit can be read.
STANDS_LATE = """
    SELECT EXISTS (
        SELECT 1 FROM pointers CROSS JOIN topics USING (log)
        WHERE log = ? AND pointer = ? AND late_offset > floor AND name IS NOT NULL
    )
"""
SET_VOIDED = f"UPDATE pointers SET has_entries = 0 WHERE {_OF_POINTER}"
# Of a deleted topic.
REMOVE_OF_LOG = [
    f"""
    DELETE FROM {table} WHERE log = :log AND ({key}) IN (
        SELECT {key} FROM {table} WHERE log = :log LIMIT :limit
    )
    """
    for table, key in (
        ("pointer_places", "pointer, stamp"),
        ("stored", "pointer, stamp"),
        ("pointers", "pointer"),
    )
]
