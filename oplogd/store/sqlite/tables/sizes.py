"""The tables that count the bytes of topics.

Entries are counted some time after their append, in the order of their offsets. A counter in the
append's own transaction would write one more page for each publish. Triggers follow all later
changes and removals, also in an agent of a version before.
"""

from oplogd.store.numbers import MAX_LOG
from oplogd.store.topics import ENTRY_BYTES, MAX_OFFSET


def size(data: str) -> str:
    """Return the SQL for the bytes that a row counts. ``data``: its column."""
    return f"({ENTRY_BYTES} + length(CAST({data} AS BLOB)))"


# `octets`: of the entries up to the offset `counted`, and of stored messages. `swept`: the last
# look for entries to remove saw all offsets up to this one. `gone`: the newest offset that left
# because of a bound, and `turn`: the number of this change in the store. The row of log 0 stands
# for all topics together: its `octets` exceed its bound only while nothing may leave, its `gone` is
# the number of entries that have left in all topics, its `turn` the newest one.
_CREATE_SIZES = """
    CREATE TABLE topic_sizes (
        log INTEGER PRIMARY KEY, octets INTEGER NOT NULL, max_bytes INTEGER,
        swept INTEGER NOT NULL, gone INTEGER NOT NULL, turn INTEGER NOT NULL,
        counted INTEGER NOT NULL
    )"""
# Messages stored under a pointer before this table, up to a write stamp. They are not counted yet.
_CREATE_UNCOUNTED = """
    CREATE TABLE uncounted_stored (
        log INTEGER NOT NULL, pointer INTEGER NOT NULL, last INTEGER NOT NULL,
        PRIMARY KEY (log, pointer)
    ) WITHOUT ROWID"""


def _entries_trigger(name: str, event: str, change: str) -> str:
    return f"""
    CREATE TRIGGER {name} AFTER {event} ON entries BEGIN
        UPDATE topic_sizes SET octets = octets + {change}
        WHERE (log & {MAX_LOG}) = (OLD.place >> 40) AND (OLD.place & {MAX_OFFSET}) <= counted;
    END"""


_IS_COUNTED = """NOT EXISTS (
            SELECT 1 FROM uncounted_stored
            WHERE log = OLD.log AND pointer = OLD.pointer AND last >= OLD.stamp
        )"""

MIGRATION = (
    _CREATE_SIZES,
    _CREATE_UNCOUNTED,
    "INSERT INTO topic_sizes VALUES (0, 0, NULL, 0, 0, 0, 0)",
    "INSERT INTO topic_sizes SELECT log, 0, NULL, 0, 0, 0, 0 FROM topics",
    "INSERT INTO uncounted_stored SELECT log, pointer, last FROM pointers WHERE last > 0",
    # An entry knows the number of its log only. A topic has it alone.
    f"CREATE UNIQUE INDEX sizes_by_number ON topic_sizes (log & {MAX_LOG})",
    "CREATE INDEX topics_over_bound ON topic_sizes (log) WHERE octets > max_bytes",
    "CREATE INDEX topics_with_bound ON topic_sizes (log) WHERE max_bytes IS NOT NULL",
    "CREATE INDEX topics_by_turn ON topic_sizes (turn) WHERE turn > 0 AND log > 0",
    # Finds whether a DEFERRED entry belongs to a transaction that is not over.
    "CREATE INDEX records_by_place ON records (place) WHERE place IS NOT NULL",
    """
    CREATE TRIGGER size_of_topic AFTER INSERT ON topics BEGIN
        INSERT OR REPLACE INTO topic_sizes VALUES (NEW.log, 0, NULL, NEW.floor, 0, 0, NEW.floor);
    END""",
    """
    CREATE TRIGGER size_of_deleted AFTER UPDATE OF name ON topics WHEN NEW.name IS NULL BEGIN
        UPDATE topic_sizes SET max_bytes = NULL WHERE log = NEW.log;
    END""",
    """
    CREATE TRIGGER size_leaves AFTER DELETE ON topics BEGIN
        DELETE FROM topic_sizes WHERE log = OLD.log;
        DELETE FROM uncounted_stored WHERE log = OLD.log;
    END""",
    # Offset and number of the log are parts of the place: see the table `entries`.
    _entries_trigger("size_shrinks", "DELETE", f"-{size('OLD.data')}"),
    _entries_trigger("size_changes", "UPDATE OF data", f"{size('NEW.data')} - {size('OLD.data')}"),
    f"""
    CREATE TRIGGER size_of_stored AFTER INSERT ON stored BEGIN
        UPDATE topic_sizes SET octets = octets + {size("NEW.data")} WHERE log = NEW.log;
    END""",
    f"""
    CREATE TRIGGER size_of_unstored AFTER DELETE ON stored BEGIN
        UPDATE topic_sizes SET octets = octets - {size("OLD.data")}
        WHERE log = OLD.log AND {_IS_COUNTED};
    END""",
)
