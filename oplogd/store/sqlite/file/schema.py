"""The tables of the file, and the steps from one version to the next."""

from typing import NamedTuple

from oplogd.model.event_id import MAX_MS
from oplogd.store.numbers import MAX_LOG
from oplogd.store.sqlite.tables import consumers, sizes
from oplogd.store.topics import DEFAULT_TTL

# ``oplg``: marks a SQLite file as an oplog store.
APPLICATION_ID = 0x6F706C67
# Value of `openings.opened` until the first entry after that opening.
NEVER = MAX_MS + 1


class Migration(NamedTuple):
    """A step from one version of the file to the next. Each item is one SQL statement."""

    name: str
    statements: tuple[str, ...]


# A row for each log. `bytes` counts towards the cap.
CREATE_LOGS = """
    CREATE TABLE logs (
        name TEXT PRIMARY KEY, max_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL,
        head INTEGER NOT NULL, head_ts INTEGER NOT NULL,
        created INTEGER NOT NULL, first INTEGER NOT NULL, purged INTEGER NOT NULL
    )"""
# A new epoch renames this table and creates it again.
CREATE_OPS = """
    CREATE TABLE ops (
        seq INTEGER PRIMARY KEY, ts INTEGER NOT NULL, event TEXT NOT NULL, key TEXT NOT NULL,
        data TEXT NOT NULL
    )"""
CREATE_STATES = """
    CREATE TABLE states (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, n INTEGER NOT NULL, ts INTEGER NOT NULL,
        deleted INTEGER NOT NULL, data TEXT NOT NULL
    )"""
# `opened`: time of the first entry after the file was opened; `head_ts`: time of the head when it
# was opened. No entry has a time between the two.
CREATE_OPENINGS = """
    CREATE TABLE openings (head_ts INTEGER PRIMARY KEY, opened INTEGER NOT NULL)"""
# Spans of times, ends excluded, of logs set aside because their clock was ahead.
CREATE_SET_ASIDE = """
    CREATE TABLE set_aside (after INTEGER NOT NULL, before INTEGER NOT NULL)"""

# One row. `ttl`: seconds to live of topics without their own. `version`: grows with every change of
# the catalogue. `ended_stamp`: past all stamps in deleted topics, so even the last id of one is
# before the front of the next.
CREATE_CATALOGUE = """
    CREATE TABLE catalogue (
        ttl INTEGER NOT NULL, version INTEGER NOT NULL, last_log INTEGER NOT NULL,
        ended_stamp INTEGER NOT NULL
    )"""
# A row for each generation of a topic; deleted ones have no name. `log`: see `numbers`. `floor`:
# entries up to it are gone, whatever their age. Deleting them may take until the next sweep.
CREATE_TOPICS = """
    CREATE TABLE topics (
        log INTEGER PRIMARY KEY, namespace TEXT, name TEXT, ttl INTEGER,
        head INTEGER NOT NULL, head_stamp INTEGER NOT NULL,
        floor INTEGER NOT NULL, floor_stamp INTEGER NOT NULL,
        UNIQUE (namespace, name)
    )"""
# `place`: number of the log << 40 | offset. `expires`: end of the message's own time to live in ms
# since 1970, 0 without one. Negative for DEFERRED entries: the sweep must not empty them, since
# committed readers may read them for longer.
CREATE_ENTRIES = """
    CREATE TABLE entries (
        place INTEGER PRIMARY KEY, stamp INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
        expires INTEGER NOT NULL
    )"""
# A row for each transaction. `grp`: its group. `ends`: the time-out while it is open, afterwards
# the time of the decision. `logs`: JSON array of its logs. `result`: the answer of its commit,
# compressed.
CREATE_TXNS = """
    CREATE TABLE txns (
        id INTEGER PRIMARY KEY, log INTEGER NOT NULL, grp TEXT, only_log INTEGER,
        state TEXT NOT NULL, reason TEXT,
        begun INTEGER NOT NULL, expires INTEGER NOT NULL, ends INTEGER NOT NULL,
        logs TEXT NOT NULL, records INTEGER NOT NULL, octets INTEGER NOT NULL,
        begin_offset INTEGER, begin_stamp INTEGER, commit_offset INTEGER, commit_stamp INTEGER,
        result BLOB
    )"""
# `place`: of the DEFERRED entry, which holds the message. Operations have no place, but `event`,
# `key` and `data`, until the commit.
CREATE_RECORDS = """
    CREATE TABLE records (
        txn INTEGER NOT NULL, lsn INTEGER NOT NULL, log INTEGER NOT NULL, digest TEXT NOT NULL,
        place INTEGER, event TEXT, key TEXT, data TEXT,
        PRIMARY KEY (txn, lsn)
    ) WITHOUT ROWID"""

# A row for each lease that was ever held; rows stay. `ends`: any client may acquire it from then
# on. `ttl`: time to live in ms of the last extension.
CREATE_LEASES = """
    CREATE TABLE leases (
        name TEXT PRIMARY KEY, holder TEXT, term INTEGER NOT NULL, ends INTEGER NOT NULL,
        ttl INTEGER NOT NULL, note TEXT NOT NULL
    ) WITHOUT ROWID"""

# A row for each pointer in a topic. `state`: `open`, or the decision. `expires`: it times out then.
# `has_entries`: something was published under it and is not void. `last`: the largest write stamp,
# 0 if nothing was stored. `published`: the largest one that was published or rolled back; `records`
# and `octets`: of the stored messages past it. `publish_…`: of the last PUBLISH entry, NULL without
# one or after its rollback. `end_…`: of the decision.
CREATE_POINTERS = """
    CREATE TABLE pointers (
        log INTEGER NOT NULL, pointer INTEGER NOT NULL, state TEXT NOT NULL,
        begun INTEGER NOT NULL, expires INTEGER NOT NULL, has_entries INTEGER NOT NULL,
        last INTEGER NOT NULL, published INTEGER NOT NULL,
        records INTEGER NOT NULL, octets INTEGER NOT NULL,
        publish_offset INTEGER, publish_stamp INTEGER, end_offset INTEGER, end_stamp INTEGER,
        PRIMARY KEY (log, pointer)
    ) WITHOUT ROWID"""
# The DIRECT and PUBLISH entries of each pointer. The data of these entries begins with the pointer
# and a space.
CREATE_POINTER_ENTRIES = """
    CREATE TABLE pointer_entries (
        log INTEGER NOT NULL, pointer INTEGER NOT NULL, stamp INTEGER NOT NULL,
        place INTEGER NOT NULL,
        PRIMARY KEY (log, pointer, stamp)
    ) WITHOUT ROWID"""
# `stamp`: the write stamp. `ttl`: own time to live in ms, NULL without one.
CREATE_STORED = """
    CREATE TABLE stored (
        log INTEGER NOT NULL, pointer INTEGER NOT NULL, stamp INTEGER NOT NULL,
        data TEXT NOT NULL, ttl INTEGER,
        PRIMARY KEY (log, pointer, stamp)
    ) WITHOUT ROWID"""

# A row for each topic with rules of its own for messages under pointers. `timeout`: in seconds,
# NULL for the agent's. No columns of `topics`: an agent of the version before inserts whole rows.
CREATE_POINTER_RULES = """
    CREATE TABLE pointer_rules (
        log INTEGER PRIMARY KEY, is_on INTEGER NOT NULL, timeout INTEGER
    )"""
CREATE_POINTER_RULES_LEAVE = """
    CREATE TRIGGER pointer_rules_leave AFTER DELETE ON topics BEGIN
        DELETE FROM pointer_rules WHERE log = OLD.log;
    END"""

# The fences of transactions. No columns of `txns`, for the same reason.
CREATE_TXN_FENCES = """
    CREATE TABLE txn_fences (txn INTEGER PRIMARY KEY, lease TEXT NOT NULL, term INTEGER NOT NULL)"""
CREATE_TXN_FENCES_LEAVE = """
    CREATE TRIGGER txn_fences_leave AFTER DELETE ON txns BEGIN
        DELETE FROM txn_fences WHERE txn = OLD.id;
    END"""
# The numbers of transactions. `newest`: it is the newest committed one of its key. The row of this
# transaction has no end, so it is never forgotten.
CREATE_TXN_NUMBERS = """
    CREATE TABLE txn_numbers (
        txn INTEGER PRIMARY KEY, key TEXT NOT NULL, number INTEGER NOT NULL,
        newest INTEGER NOT NULL
    )"""
CREATE_TXN_NUMBERS_LEAVE = """
    CREATE TRIGGER txn_numbers_leave AFTER DELETE ON txns BEGIN
        DELETE FROM txn_numbers WHERE txn = OLD.id;
    END"""
# A row for each topic after a forced rollback. `stamp`: of the newest lost message.
CREATE_PURGES = """
    CREATE TABLE purges (log INTEGER PRIMARY KEY, stamp INTEGER NOT NULL)"""

# Tables without a new version: an agent of the version before works without them.
#
# `guarded_clock`: one row, the guarded time (see `oplogd/clock/rule.py`). `dated`: the entries of
# the log with this number from `first` to `offset` were written at `ms`. Only for entries whose
# stamps were ahead then. `repaired`: spans of ms with ids from before a repair of topics ahead.
# `ended_ahead`: by name, a stamp past all in a deleted topic whose stamps were ahead. `identity`:
# one row, 32 hexadecimal digits. `secret`: one row, 32 random bytes. `txn_owners`: the owners of
# transactions, no row without one.
ADDED = (
    """CREATE TABLE IF NOT EXISTS guarded_clock (
        id INTEGER PRIMARY KEY, wall INTEGER NOT NULL, times INTEGER NOT NULL,
        removals INTEGER NOT NULL, times_left INTEGER NOT NULL, removals_left INTEGER NOT NULL,
        ages TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS dated (
        number INTEGER NOT NULL, offset INTEGER NOT NULL, first INTEGER NOT NULL,
        ms INTEGER NOT NULL, PRIMARY KEY (number, offset)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS repaired (first INTEGER NOT NULL, last INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS ended_ahead (
        namespace TEXT NOT NULL, name TEXT NOT NULL, stamp INTEGER NOT NULL,
        PRIMARY KEY (namespace, name)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS identity (store TEXT NOT NULL)""",
    """INSERT INTO identity SELECT lower(hex(randomblob(16)))
        WHERE NOT EXISTS (SELECT * FROM identity)""",
    """CREATE TABLE IF NOT EXISTS secret (store BLOB NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS txn_owners (txn INTEGER PRIMARY KEY, owner TEXT NOT NULL)""",
    """CREATE TRIGGER IF NOT EXISTS txn_owners_leave AFTER DELETE ON txns BEGIN
        DELETE FROM txn_owners WHERE txn = OLD.id;
    END""",
    "CREATE INDEX IF NOT EXISTS txns_by_owner ON txn_owners (owner)",
    *consumers.ADDED,
)

# Append new steps at the end; never change one that was released. The position is the version.
MIGRATIONS = (
    Migration(
        "log and states",
        (
            CREATE_LOGS,
            CREATE_OPS,
            CREATE_STATES,
            CREATE_OPENINGS,
            "CREATE INDEX states_by_time ON states (ts, n)",
            "CREATE INDEX tombstones ON states (ts) WHERE deleted",
        ),
    ),
    # A read of live states passes over tombstones. One index in place of two keeps the cost of an
    # append.
    Migration(
        "live states apart from tombstones",
        (
            "CREATE INDEX states_in_order ON states (deleted, ts, n)",
            "DROP INDEX states_by_time",
            "DROP INDEX tombstones",
            CREATE_SET_ASIDE,
            "UPDATE openings"
            " SET opened = min(opened, CAST(strftime('%s', 'now') AS INTEGER) * 1000)",
        ),
    ),
    # The tables of the oplog stay as they are: an agent of the version before, beside this one,
    # goes on with its open connections. It opens no others.
    Migration(
        "topics",
        (
            CREATE_CATALOGUE,
            f"INSERT INTO catalogue VALUES ({DEFAULT_TTL}, 0, 0, 0)",
            CREATE_TOPICS,
            CREATE_ENTRIES,
            "CREATE INDEX entries_by_end ON entries (expires) WHERE expires > 0",
        ),
    ),
    # The other tables stay as they are, for the same reason.
    Migration(
        "transactions",
        (
            CREATE_TXNS,
            "CREATE INDEX txns_by_state ON txns (state, id)",
            "CREATE INDEX txns_by_end ON txns (state, ends)",
            CREATE_RECORDS,
        ),
    ),
    # As above.
    Migration("leases", (CREATE_LEASES,)),
    # As above.
    Migration(
        "pointers",
        (
            CREATE_POINTERS,
            "CREATE INDEX open_pointers ON pointers (expires, log, begun) WHERE state = 'open'",
            "CREATE INDEX aborted_pointers ON pointers (log, pointer)"
            " WHERE state = 'aborted' AND has_entries",
            CREATE_POINTER_ENTRIES,
            CREATE_STORED,
        ),
    ),
    # As above.
    Migration("rules for pointers", (CREATE_POINTER_RULES, CREATE_POINTER_RULES_LEAVE)),
    # As above. Older agents do not know numbers in use again.
    Migration(
        "numbers of logs are used again",
        (f"CREATE UNIQUE INDEX topics_by_number ON topics (log & {MAX_LOG})",),
    ),
    # As above. Such an agent would commit without judging a fence.
    Migration("fences of transactions", (CREATE_TXN_FENCES, CREATE_TXN_FENCES_LEAVE)),
    # An agent of the version before, beside this one, would roll back reported commits, and void
    # entries without telling other agents. So the tables of pointers change: it can still read and
    # publish other messages. `late_…`: mark of the last LATE entry.
    Migration(
        "late reports",
        (
            "ALTER TABLE pointers ADD COLUMN late_offset INTEGER",
            "ALTER TABLE pointers ADD COLUMN late_stamp INTEGER",
            "ALTER TABLE pointer_entries RENAME TO pointer_places",
            "CREATE INDEX timed_out_pointers ON pointers (log, begun)"
            " WHERE state = 'timed out' AND late_offset IS NULL AND has_entries",
            CREATE_PURGES,
        ),
    ),
    # As above: its triggers count what such an agent writes.
    Migration("sizes of topics", sizes.MIGRATION),
    # As above. Such an agent would commit a number twice, and forget which were committed.
    Migration(
        "numbers of transactions",
        (
            CREATE_TXN_NUMBERS,
            "CREATE UNIQUE INDEX newest_txns ON txn_numbers (key) WHERE newest",
            CREATE_TXN_NUMBERS_LEAVE,
        ),
    ),
)
