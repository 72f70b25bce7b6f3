"""The file's layout and every statement on it."""

from collections.abc import Callable

from oplogd.event_id import MAX_MS

APPLICATION_ID = 0x6F706C67
"""``oplg``: marks the file as ours."""

STATEMENT_BYTES = 1 << 20
STATEMENT_OPERATIONS = 5_000
"""About what one statement appends at most. More in one costs memory and saves no time."""

READ_CHARACTERS = 1_000_000
"""About what one read brings at most, however long the operations are."""

_NEVER = MAX_MS + 1
MIGRATIONS = (
    # 1: the first layout. `logs` has a row for each log; `bytes` is what its entries count for the cap. `openings`:
    # when the file was opened, and the time of the head then: no entry has a time between the two.
    """
    CREATE TABLE logs (
        name TEXT PRIMARY KEY, max_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL,
        head INTEGER NOT NULL, head_ts INTEGER NOT NULL,
        created INTEGER NOT NULL, first INTEGER NOT NULL, purged INTEGER NOT NULL
    );
    CREATE TABLE ops (
        seq INTEGER PRIMARY KEY, ts INTEGER NOT NULL, event TEXT NOT NULL, key TEXT NOT NULL, data TEXT NOT NULL
    );
    CREATE TABLE states (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, n INTEGER NOT NULL, ts INTEGER NOT NULL,
        deleted INTEGER NOT NULL, data TEXT NOT NULL
    );
    CREATE TABLE openings (head_ts INTEGER PRIMARY KEY, opened INTEGER NOT NULL);
    CREATE INDEX states_by_time ON states (ts, n);
    CREATE INDEX tombstones ON states (ts) WHERE deleted;
    """,
    # 2: live states are found without a look at deleted ones. One index instead of two costs an append nothing.
    # `openings.opened` is the time of the first entry written after that opening, and _NEVER until there is one.
    # `set_aside`: times, ends not included, that belong to a log set aside whose clock was ahead.
    """
    CREATE INDEX states_in_order ON states (deleted, ts, n);
    DROP INDEX states_by_time;
    DROP INDEX tombstones;
    CREATE TABLE set_aside (after INTEGER NOT NULL, before INTEGER NOT NULL);
    UPDATE openings SET opened = min(opened, CAST(strftime('%s', 'now') AS INTEGER) * 1000);
    """,
)

PRAGMAS = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA cache_size = -65536;
    PRAGMA wal_autocheckpoint = 10000;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA temp_store = MEMORY;
"""
SMALL_CACHE = "PRAGMA cache_size = -4096"
NEW_LOG = "INSERT INTO logs VALUES ('ops', ?, 0, 0, ?, ?, 1, 0)"
HEAD = "SELECT head, head_ts FROM logs WHERE name = 'ops'"
CAP = "SELECT bytes, max_bytes FROM logs WHERE name = 'ops'"
SET_CAP = "UPDATE logs SET max_bytes = ? WHERE name = 'ops'"

# What an entry counts for the cap: its text and about what SQLite keeps beside it.
_SIZE = "length(CAST(key AS BLOB)) + length(CAST(data AS BLOB)) + 32"
# An append is one statement, also its numbering, fold and trimming: each statement more takes the GIL back from the event
# loop, which at full load takes half a millisecond.
APPENDER = f"""
    CREATE TEMP TABLE IF NOT EXISTS cut (seq INTEGER NOT NULL, total INTEGER NOT NULL);
    CREATE TEMP VIEW batch AS SELECT 0 AS ts, '[["event", "key", "data"]]' AS body;
    CREATE TEMP TRIGGER append INSTEAD OF INSERT ON batch BEGIN
        INSERT INTO ops
        SELECT head + 1 + json.key, max(NEW.ts, head_ts), json_extract(value, '$[0]'), json_extract(value, '$[1]'),
        json_extract(value, '$[2]') FROM logs CROSS JOIN json_each(NEW.body) AS json WHERE name = 'ops';
        INSERT INTO states (key, n, ts, deleted, data)
        SELECT key, seq, ts, event = 'delete', data FROM ops
        WHERE seq > (SELECT head FROM logs WHERE name = 'ops') ORDER BY seq
        ON CONFLICT (key) DO UPDATE
        SET n = excluded.n, ts = excluded.ts, deleted = excluded.deleted, data = excluded.data;
        UPDATE openings SET opened = max(NEW.ts, head_ts) WHERE head_ts = (SELECT head_ts FROM logs WHERE name = 'ops')
        AND opened = {_NEVER} AND json_array_length(NEW.body);
        UPDATE logs SET head = head + json_array_length(NEW.body), head_ts = max(NEW.ts, head_ts),
        bytes = bytes + (SELECT coalesce(sum({_SIZE}), 0) FROM ops WHERE seq > head) WHERE name = 'ops';
        INSERT INTO cut
        SELECT seq, total FROM (
            SELECT seq, sum(size) OVER (ORDER BY seq) AS total FROM (
                SELECT seq, {_SIZE} AS size FROM ops WHERE seq < (SELECT head FROM logs WHERE name = 'ops') ORDER BY seq
                LIMIT (SELECT CASE WHEN bytes > max_bytes THEN (bytes - max_bytes) / 32 + 1 ELSE 0 END
                       FROM logs WHERE name = 'ops')
            )
        )
        WHERE total >= (SELECT bytes - max_bytes FROM logs WHERE name = 'ops')
        OR seq = (SELECT head - 1 FROM logs WHERE name = 'ops') ORDER BY seq LIMIT 1;
        UPDATE logs SET bytes = bytes - (SELECT total FROM cut) WHERE name = 'ops' AND EXISTS (SELECT 1 FROM cut);
        DELETE FROM ops WHERE seq <= (SELECT seq FROM cut);
        DELETE FROM cut;
    END;
"""
APPEND = "INSERT INTO batch VALUES (?, ?)"
# A second correction of one object in a batch expects what the first has changed: `turn` tells.
JUDGE = """
    WITH given AS (
        SELECT key AS place, json_extract(value, '$[0]') AS event, json_extract(value, '$[1]') AS key,
        json_extract(value, '$[2]') AS data, json_extract(value, '$[3]') AS expected FROM json_each(?)
    ), turns AS (SELECT *, row_number() OVER (PARTITION BY key ORDER BY place) AS turn FROM given)
    SELECT json_group_array(verdict) FROM (
        SELECT CASE
        WHEN expected IS NULL OR (turn = 1 AND expected = coalesce(n, 0)) THEN 'applied'
        WHEN n IS NOT NULL AND deleted = (event = 'delete') AND states.data = turns.data THEN 'present'
        ELSE 'skipped' END AS verdict
        FROM turns LEFT JOIN states USING (key) ORDER BY place
    )
"""
# A read steps from entry to entry and stops at its bound in bytes: entries past it are not touched.
READ = f"""
    WITH RECURSIVE step (seq, ts, event, data, size) AS (
        SELECT seq, ts, event, data, length(data) FROM ops WHERE seq = (SELECT min(seq) FROM ops WHERE seq > :after)
        UNION ALL
        SELECT ops.seq, ops.ts, ops.event, ops.data, size + length(ops.data) FROM step JOIN ops ON ops.seq = step.seq + 1
        WHERE size < {READ_CHARACTERS}
        LIMIT :limit
    )
    SELECT (SELECT group_concat(seq || ' ' || ts || ' ' || event || ' ' || data, char(10)) FROM step),
    CASE WHEN first = :after + 1 THEN created ELSE (SELECT ts FROM ops WHERE seq = :after) END,
    :after BETWEEN first - 1 AND head FROM logs WHERE name = 'ops'
"""


def _next_state(deleted: int, ts: str, n: str) -> str:
    """The id of the state that follows (ts, n). Two seeks: SQLite does not seek by a pair that it computes."""
    return f"""coalesce(
        (SELECT id FROM states WHERE deleted = {deleted} AND ts = {ts} AND n > {n} ORDER BY n LIMIT 1),
        (SELECT id FROM states WHERE deleted = {deleted} AND ts > {ts} ORDER BY ts, n LIMIT 1))"""


def _page_of_states(next_state: Callable[[str, str], str]) -> str:
    """``n`` ascends with (ts, n), so the first state changed after ``upto`` ends the page, and the states."""
    return f"""
    WITH RECURSIVE step (ts, n, deleted, data, size) AS (
        SELECT ts, n, deleted, data, length(data) FROM states WHERE id = {next_state(":ts", ":n")} AND n <= :upto
        UNION ALL
        SELECT s.ts, s.n, s.deleted, s.data, size + length(s.data)
        FROM step JOIN states AS s ON s.id = {next_state("step.ts", "step.n")}
        WHERE size < {READ_CHARACTERS} AND s.n <= :upto
        LIMIT :limit
    )
    SELECT group_concat(ts || ' ' || n || ' ' || deleted || ' ' || data, char(10)) FROM step
"""


LIVE_STATES = _page_of_states(lambda ts, n: _next_state(0, ts, n))
STATES = _page_of_states(
    lambda ts, n: (
        f"""(
        SELECT id FROM states WHERE id IN ({_next_state(0, ts, n)}, {_next_state(1, ts, n)}) ORDER BY ts, n LIMIT 1)"""
    )
)
LOCATE = "SELECT head, head_ts, created, first, purged FROM logs WHERE name = 'ops'"
OLDEST = "SELECT seq, ts FROM ops ORDER BY seq LIMIT 1"
AT = "SELECT ts FROM ops WHERE seq = ?"
STATES_COUNT = "SELECT count(*) FROM states"
DELETED_COUNT = "SELECT count(*) FROM states WHERE deleted = 1"
STATES_BOUND = (
    "SELECT coalesce(max(id), 0) FROM states"  # the count, but for states that were purged
)
OPENED = f"""
    INSERT INTO openings SELECT head_ts, {_NEVER} FROM logs WHERE name = 'ops'
    ON CONFLICT (head_ts) DO UPDATE SET opened = {_NEVER}
"""
# An older agent that runs beside this one does not note when it writes.
UNWRITTEN = f"""
    SELECT head_ts, opened FROM openings
    WHERE opened < {_NEVER} OR head_ts = (SELECT head_ts FROM logs WHERE name = 'ops')
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
NEW_EPOCH = "UPDATE logs SET bytes = 0, head_ts = ?, created = ?, first = head + 1, purged = 0 WHERE name = 'ops'"
FIRST_AFTER = "SELECT ts FROM ops WHERE ts > ? ORDER BY seq LIMIT 1"
SET_ASIDE = "INSERT INTO set_aside VALUES (?, ?)"
# Ids from before a new epoch bring `reset` by themselves; states are stamped with its time.
NEW_EPOCH_SPANS = (
    "UPDATE set_aside SET after = max(after, :now)",
    "DELETE FROM set_aside WHERE before <= :now + 1",
    "DELETE FROM openings",
)
