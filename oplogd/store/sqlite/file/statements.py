"""The SQL statements of the store."""

from collections.abc import Callable

from oplogd.store.sqlite.file.schema import NEVER
from oplogd.store.sqlite.file.template import READ_CHARACTERS, search, steps

# FAST: without it some builds of SQLite overwrite all freed pages. A rollback of large messages
# then writes as many bytes as they had, takes this memory, and delays all writers.
PRAGMAS = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA cache_size = -65536;
    PRAGMA wal_autocheckpoint = 10000;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA temp_store = MEMORY;
    PRAGMA secure_delete = FAST;
"""
SMALL_CACHE = "PRAGMA cache_size = -4096"
IDENTITY = "SELECT store FROM identity"
MAKE_SECRET = "INSERT INTO secret SELECT ? WHERE NOT EXISTS (SELECT * FROM secret)"
SECRET = "SELECT store FROM secret"
NEW_LOG = "INSERT INTO logs VALUES ('ops', ?, 0, 0, ?, ?, 1, 0)"
HEAD = "SELECT head, head_ts FROM logs WHERE name = 'ops'"
CAP = "SELECT bytes, max_bytes FROM logs WHERE name = 'ops'"
SET_CAP = "UPDATE logs SET max_bytes = ? WHERE name = 'ops'"

# Size of an entry, counted towards the cap: its text and roughly the overhead of a row.
_SIZE = "length(CAST(key AS BLOB)) + length(CAST(data AS BLOB)) + 32"
REPLACE_STATE = """ON CONFLICT (key) DO UPDATE
        SET n = excluded.n, ts = excluded.ts, deleted = excluded.deleted, data = excluded.data"""


def end_opening(ts: str, count: str) -> str:
    """Return the SQL that records the time of the first entry after the file was opened."""
    return f"""UPDATE openings SET opened = max({ts}, head_ts)
        WHERE head_ts = (SELECT head_ts FROM logs WHERE name = 'ops')
        AND opened = {NEVER} AND {count}"""


def advance(ts: str, count: str) -> str:
    """Return the SQL that counts new entries past the head, and their size."""
    return f"""UPDATE logs SET head = head + {count}, head_ts = max({ts}, head_ts),
        bytes = bytes + (SELECT coalesce(sum({_SIZE}), 0) FROM ops WHERE seq > head)
        WHERE name = 'ops'"""


# One statement numbers, appends, folds and trims. Each further statement would take the GIL from
# the event loop, which at full load costs half a millisecond.
APPENDER = f"""
    CREATE TEMP TABLE IF NOT EXISTS cut (seq INTEGER NOT NULL, total INTEGER NOT NULL);
    CREATE TEMP VIEW batch
    AS SELECT 0 AS ts, '[["event", "key", "data"]]' AS body, 1 AS operations;
    CREATE TEMP TRIGGER append INSTEAD OF INSERT ON batch BEGIN
        INSERT INTO ops
        SELECT head + 1 + json.key, max(NEW.ts, head_ts), json_extract(value, '$[0]'),
        json_extract(value, '$[1]'), json_extract(value, '$[2]')
        FROM logs CROSS JOIN json_each(NEW.body) AS json WHERE name = 'ops';
        INSERT INTO states (key, n, ts, deleted, data)
        SELECT key, seq, ts, event = 'delete', data FROM ops
        WHERE seq > (SELECT head FROM logs WHERE name = 'ops') ORDER BY seq
        {REPLACE_STATE};
        {end_opening("NEW.ts", "NEW.operations")};
        {advance("NEW.ts", "NEW.operations")};
        INSERT INTO cut
        SELECT seq, total FROM (
            SELECT seq, sum(size) OVER (ORDER BY seq) AS total FROM (
                SELECT seq, {_SIZE} AS size FROM ops
                WHERE seq < (SELECT head FROM logs WHERE name = 'ops') ORDER BY seq
                LIMIT (
                    SELECT CASE WHEN bytes > max_bytes THEN (bytes - max_bytes) / 32 + 1 ELSE 0 END
                    FROM logs WHERE name = 'ops'
                )
            )
        )
        WHERE total >= (SELECT bytes - max_bytes FROM logs WHERE name = 'ops')
        OR seq = (SELECT head - 1 FROM logs WHERE name = 'ops') ORDER BY seq LIMIT 1;
        UPDATE logs SET bytes = bytes - (SELECT total FROM cut)
        WHERE name = 'ops' AND EXISTS (SELECT 1 FROM cut);
        DELETE FROM ops WHERE seq <= (SELECT seq FROM cut);
        DELETE FROM cut;
    END;
"""
# Returns the new head, its time, and the time of the entry before the batch: NULL if it has left.
APPEND = """
    INSERT INTO batch VALUES (:now, :body, :operations) RETURNING
    (SELECT head FROM logs WHERE name = 'ops'), (SELECT head_ts FROM logs WHERE name = 'ops'),
    (SELECT ts FROM ops WHERE seq = (SELECT head FROM logs WHERE name = 'ops') - :operations)
"""
TRIM = "INSERT INTO batch VALUES (0, '[]', 0)"
LAST_OPERATIONS = """
    SELECT key, n, deleted, data FROM states WHERE key IN (SELECT value FROM json_each(?))
"""
READ = f"""
    WITH RECURSIVE {
    steps("ops", "seq", ("ts", "event"), "(SELECT min(seq) FROM ops WHERE seq > :after)")
}
    SELECT
    (SELECT group_concat(seq || ' ' || ts || ' ' || event || ' ' || data, char(10)) FROM step),
    CASE WHEN first = :after + 1 THEN created ELSE (SELECT ts FROM ops WHERE seq = :after) END,
    :after BETWEEN first - 1 AND head FROM logs WHERE name = 'ops'
"""


def _next_state(deleted: int, ts: str, n: str) -> str:
    """Return SQL for the id of the state after (ts, n).

    It takes two seeks because SQLite does not seek by a computed pair.
    """
    return f"""coalesce(
        (SELECT id FROM states WHERE deleted = {deleted} AND ts = {ts} AND n > {n}
         ORDER BY n LIMIT 1),
        (SELECT id FROM states WHERE deleted = {deleted} AND ts > {ts} ORDER BY ts, n LIMIT 1))"""


def _page_of_states(next_state: Callable[[str, str], str]) -> str:
    """Return SQL for a page of states.

    ``n`` ascends along (ts, n), so the first state changed after ``upto`` ends the states.
    """
    return f"""
    WITH RECURSIVE step (ts, n, deleted, data, size) AS (
        SELECT ts, n, deleted, data, length(data) FROM states
        WHERE id = {next_state(":ts", ":n")} AND n <= :upto
        UNION ALL
        SELECT s.ts, s.n, s.deleted, s.data, size + length(s.data)
        FROM step JOIN states AS s ON s.id = {next_state("step.ts", "step.n")}
        WHERE size < {READ_CHARACTERS} AND s.n <= :upto
        LIMIT :limit
    )
    SELECT group_concat(ts || ' ' || n || ' ' || deleted || ' ' || data, char(10)) FROM step
"""


LIVE_STATES = _page_of_states(lambda ts, n: _next_state(0, ts, n))
DELETED_STATES = _page_of_states(lambda ts, n: _next_state(1, ts, n))
STATES = _page_of_states(
    lambda ts, n: (
        f"""(
        SELECT id FROM states WHERE id IN ({_next_state(0, ts, n)}, {_next_state(1, ts, n)})
        ORDER BY ts, n LIMIT 1)"""
    )
)
LOCATE = "SELECT head, head_ts, created, first, purged FROM logs WHERE name = 'ops'"
SEEK = f"""
    WITH RECURSIVE {
    search(
        "found",
        "ops",
        "seq",
        "ts",
        start="SELECT min(seq) - 1, max(seq), :ms + 1 FROM ops",
    )
}
    SELECT seq, ts FROM (SELECT max(low) AS seq FROM found) LEFT JOIN ops USING (seq)
"""
OLDEST = "SELECT seq, ts FROM ops ORDER BY seq LIMIT 1"
AT = "SELECT ts FROM ops WHERE seq = ?"
STATES_COUNT = "SELECT count(*) FROM states"
DELETED_COUNT = "SELECT count(*) FROM states WHERE deleted = 1"
# An upper bound of the number of states: ids of purged ones count, too.
STATES_BOUND = "SELECT coalesce(max(id), 0) FROM states"
OPENED = f"""
    INSERT INTO openings SELECT head_ts, {NEVER} FROM logs WHERE name = 'ops'
    ON CONFLICT (head_ts) DO UPDATE SET opened = {NEVER}
"""
# The second condition: an older agent beside this one does not record its first entry.
UNWRITTEN = f"""
    SELECT head_ts, opened FROM openings
    WHERE opened < {NEVER} OR head_ts = (SELECT head_ts FROM logs WHERE name = 'ops')
"""
ALL_SET_ASIDE = "SELECT after, before FROM set_aside"
FORGET_OPENINGS = """
    DELETE FROM openings WHERE head_ts NOT IN (
        SELECT head_ts FROM openings ORDER BY opened - head_ts DESC LIMIT 100
    )
"""
PURGE = (
    "DELETE FROM states WHERE id IN (SELECT id FROM states WHERE deleted = 1 AND ts < ? LIMIT 5000)"
)
PURGED = "UPDATE logs SET purged = max(purged, ?) WHERE name = 'ops'"
NEW_EPOCH = """
    UPDATE logs SET bytes = 0, head_ts = ?, created = ?, first = head + 1,
        purged = iif(purged > 0, ?, 0)
    WHERE name = 'ops'
"""
FIRST_AFTER = "SELECT ts FROM ops WHERE ts > ? ORDER BY seq LIMIT 1"
SET_ASIDE = "INSERT INTO set_aside VALUES (?, ?)"
# Ids from before a new epoch bring `reset` without these spans, and all states get its time.
NEW_EPOCH_SPANS = (
    "UPDATE set_aside SET after = max(after, :now)",
    "DELETE FROM set_aside WHERE before <= :now + 1",
    "DELETE FROM openings",
)
