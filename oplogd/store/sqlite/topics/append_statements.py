"""The SQL statements that append entries of topics, each of them to any number of logs.

Another statement would take the GIL from the event loop.
"""

from oplogd.model.message_id import SEQUENCE_BITS
from oplogd.store.numbers import MAX_LOG
from oplogd.store.sqlite.topics.statements import BASE, MAX_LEAD
from oplogd.store.topics import EntryKind

# `bounded`: topics over their bound in bytes count as deleted.
HAS_ROOM = """AND NOT (NEW.bounded AND EXISTS (
            SELECT 1 FROM topic_sizes INDEXED BY topics_over_bound
            WHERE octets > max_bytes AND topic_sizes.log IN (0, topics.log)
        ))"""
_PLACE = f"{BASE} + head + 1 + given.key"
_EXPIRES = f"(first + given.key >> {SEQUENCE_BITS}) + json_extract(given.value, '$[0]')"
_DATA = "json_extract(given.value, '$[1]')"
_KIND = "json_extract(given.value, '$[2]')"
_IS_RECORD = f"{_KIND} = '{EntryKind.DEFERRED}'"


def _given(body: str) -> str:
    """Return the SQL of new entries with their places.

    ``body``: each log once, `[[log, [[ttl in ms, data, …], …]], …]`.
    """
    return f"""json_each({body}) AS batch
        CROSS JOIN placing ON log = json_extract(batch.value, '$[0]')
        CROSS JOIN json_each(batch.value, '$[1]') AS given"""


def _appender(view: str, kind: str, data: str, expires: str, *, room: str = "") -> str:
    """Return the SQL of the trigger that appends the entries given to a view.

    `placing` has their places afterwards; deleted topics are not in it. `present_ms()` asks the
    clock again: the process may have stood since it read `NEW.stamp`. The unary plus lets SQLite
    look up topics by log, not scan them.
    """
    return f"""
    CREATE TEMP TRIGGER append_{view} INSTEAD OF INSERT ON {view} BEGIN
        DELETE FROM placing;
        INSERT INTO placing
        SELECT log, head, max(NEW.stamp, head_stamp + 1), json_array_length(value, '$[1]')
        FROM json_each(NEW.body) CROSS JOIN topics ON log = json_extract(value, '$[0]')
        WHERE name IS NOT NULL {room};
        INSERT INTO entries
        SELECT {_PLACE}, first + given.key, {kind}, {data}, coalesce({expires}, 0)
        FROM {_given("NEW.body")};
        UPDATE topics SET head = placing.head + count, head_stamp = first + count - 1
        FROM placing WHERE topics.log = +placing.log;
        INSERT INTO dated SELECT log & {MAX_LOG}, head + count, head + 1, present_ms() FROM placing
        WHERE first > NEW.stamp + {MAX_LEAD}
        AND first > (present_ms() << {SEQUENCE_BITS}) + {MAX_LEAD};
    END;
"""


# `messages`: entries of one kind. `lone`: the data of the only one, outside of JSON.
# `whole_entries`: those of whole transactions, each with its kind.
APPENDER = f"""
    CREATE TEMP TABLE IF NOT EXISTS placing (
        log INTEGER PRIMARY KEY, head INTEGER NOT NULL, first INTEGER NOT NULL,
        count INTEGER NOT NULL
    );
    CREATE TEMP VIEW messages AS
    SELECT 0 AS stamp, '[[1, [[null, "data"]]]]' AS body, 'message' AS kind, 0 AS bounded,
    NULL AS lone;
    CREATE TEMP VIEW whole_entries AS
    SELECT 0 AS stamp, '[[1, [[null, "data", "deferred", 7, 0, "digest"]]]]' AS body;
    {_appender("messages", "NEW.kind", f"coalesce(NEW.lone, {_DATA})", _EXPIRES, room=HAS_ROOM)}
    {_appender("whole_entries", _KIND, _DATA, f"iif({_IS_RECORD}, -1, 1) * ({_EXPIRES})")}
"""
APPEND = "INSERT INTO messages VALUES (?, ?, ?, ?, ?)"
APPEND_WHOLE = "INSERT INTO whole_entries VALUES (?, ?)"
# The records among the entries just placed. A trigger would need the table when `ops` is renamed.
ADD_RECORDS = f"""
    INSERT INTO records
    SELECT json_extract(given.value, '$[3]'), json_extract(given.value, '$[4]'), log,
    json_extract(given.value, '$[5]'), {_PLACE}, NULL, NULL, NULL
    FROM {_given(":body")} WHERE {_IS_RECORD}
"""
PLACING = "SELECT json_group_array(json_array(log, head, first)) FROM placing"
