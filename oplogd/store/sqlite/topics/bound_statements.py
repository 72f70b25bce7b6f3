"""The SQL statements of the bounds in bytes."""

from oplogd.store.numbers import MAX_LOG
from oplogd.store.sqlite.tables.sizes import size
from oplogd.store.sqlite.topics.statements import BASE
from oplogd.store.topics import EntryKind

# --- Bounds ---

# The row of all topics together.
TOTAL_LOG = 0

SET_MAX = "UPDATE topic_sizes SET max_bytes = ? WHERE log = ?"
OVER = "SELECT log FROM topic_sizes INDEXED BY topics_over_bound WHERE octets > max_bytes"
# Those of some logs that have a bound, and whether they are over it.
BOUNDED = """
    SELECT log, octets > max_bytes FROM topic_sizes
    WHERE log IN (SELECT value FROM json_each(?)) AND max_bytes IS NOT NULL
"""
# A topic not deleted.
FIND = """
    SELECT octets, max_bytes, swept, counted, floor, head, namespace, name
    FROM topic_sizes CROSS JOIN topics USING (log) WHERE log = ? AND name IS NOT NULL
"""
SIZE = "SELECT octets FROM topic_sizes WHERE log = ?"
TOTAL = "SELECT coalesce(sum(octets), 0) FROM topic_sizes WHERE log > 0"
TOTAL_MAX = "SELECT max_bytes FROM topic_sizes WHERE log = 0"
TOTAL_ROW = "SELECT octets, max_bytes, gone FROM topic_sizes WHERE log = 0"
SET_TOTAL = "UPDATE topic_sizes SET octets = ? WHERE log = 0"
# Time of the oldest entry past the floor, of each topic.
FRONTS = f"""
    SELECT stamp, log FROM (
        SELECT log, (
            SELECT stamp FROM entries WHERE place > {BASE} + floor
            AND place <= {BASE} + head ORDER BY place LIMIT 1
        ) AS stamp FROM topics WHERE name IS NOT NULL
    ) WHERE stamp IS NOT NULL
"""

# --- Leaving ---

_MARKERS = f"'{EntryKind.COMMIT}', '{EntryKind.ABORT}', '{EntryKind.PUBLISH}'"
_WITH_POINTER = f"'{EntryKind.DIRECT}', '{EntryKind.PUBLISH}'"
# Entries in order: offset, stamp, kind, bytes, the pointer, the data of a marker, and whether it is
# a record of an open transaction.
LOOK = f"""
    SELECT place - :base, stamp, kind, {size("data")},
    iif(kind IN ({_WITH_POINTER}), CAST(data AS INTEGER), NULL),
    iif(kind IN ({_MARKERS}), data, NULL),
    kind = '{EntryKind.DEFERRED}' AND EXISTS (
        SELECT 1 FROM records INDEXED BY records_by_place WHERE records.place = entries.place
    )
    FROM entries WHERE place > :base + :after AND place <= :base + :head ORDER BY place LIMIT :limit
"""
END_OF_POINTER = "SELECT state, end_offset, end_stamp FROM pointers WHERE log = ? AND pointer = ?"
# The time of writing of the entries from an offset to another one not before this.
WRITTEN = f"""
    SELECT first, ms FROM dated WHERE number = ? & {MAX_LOG} AND offset >= ? ORDER BY offset LIMIT 1
"""
REMOVE = "DELETE FROM entries WHERE place IN (SELECT value + :base FROM json_each(:offsets))"
SIZE_OF_RECORDS = f"""
    SELECT coalesce(sum({size("entries.data")}), 0) FROM records CROSS JOIN entries USING (place)
    WHERE txn = ? AND log = ?
"""
SET_SWEPT = "UPDATE topic_sizes SET swept = ? WHERE log = ?"
# Counts the removed entries, too.
NEXT_TURN = "UPDATE topic_sizes SET turn = turn + 1, gone = gone + ? WHERE log = 0"
SET_GONE = """
    UPDATE topic_sizes SET gone = ?, turn = (SELECT turn FROM topic_sizes WHERE log = 0)
    WHERE log = ?
"""
# A transaction has ended: look again for its records, now without use.
LOOK_AGAIN = """
    UPDATE topic_sizes SET swept = 0
    WHERE log IN (SELECT value FROM json_each(?)) AND swept > 0
"""
GONE_SINCE = """
    SELECT log, gone, turn FROM topic_sizes INDEXED BY topics_by_turn
    WHERE turn > ? AND turn > 0 AND log > 0
"""

# --- Counting ---

# Topics with uncounted entries, and those over their bound.
BEHIND = """
    SELECT log FROM topics CROSS JOIN topic_sizes USING (log)
    WHERE name IS NOT NULL AND head > counted
"""
BOUND = "SELECT log FROM topic_sizes INDEXED BY topics_with_bound WHERE max_bytes IS NOT NULL"
BOUND_BEHIND = """
    SELECT log FROM topic_sizes INDEXED BY topics_with_bound CROSS JOIN topics USING (log)
    WHERE max_bytes IS NOT NULL AND name IS NOT NULL AND (head > counted OR octets > max_bytes)
"""
NEW_SIZES = f"""
    SELECT place - :base, {size("data")} FROM entries
    WHERE place > :base + :after AND place <= :base + :upto ORDER BY place LIMIT :limit
"""
COUNTED = "UPDATE topic_sizes SET octets = octets + ?, counted = ? WHERE log = ?"
LEFT_TO_COUNT = "SELECT count(*) FROM uncounted_stored"
STORED_TO_COUNT = "SELECT log, pointer, last FROM uncounted_stored LIMIT 1"
OLD_STORED = f"""
    SELECT coalesce(sum({size("data")}), 0) FROM stored
    WHERE log = ? AND pointer = ? AND stamp <= ?
"""
ADD_STORED = "UPDATE topic_sizes SET octets = octets + ? WHERE log = ?"
STORED_COUNTED = "DELETE FROM uncounted_stored WHERE log = ? AND pointer = ?"
