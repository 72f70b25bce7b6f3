"""The SQL statements of transactions."""

from oplogd.model.message_id import SEQUENCE_BITS
from oplogd.model.transaction import FIRST_ID, State
from oplogd.store.numbers import MAX_LOG
from oplogd.store.sqlite.file.ages import is_over, oldest
from oplogd.store.sqlite.file.statements import REPLACE_STATE, advance, end_opening
from oplogd.store.sqlite.topics.statements import BASE, MAX_LEAD
from oplogd.store.transactions import OPLOG_INDEX

# Random bits of an id. The bits above them count ms since 1970.
RANDOM_BITS = 20

# A time past all times: SQLite's largest integer.
NEVER = (1 << 63) - 1

# --- Rows ---

_COLUMNS = """log, grp, only_log, state, reason, begun, expires, logs, records, octets,
    begin_offset, begin_stamp, commit_offset, commit_stamp, lease, term, key, number, owner"""
_MORE = """
    LEFT JOIN txn_fences ON txn_fences.txn = id LEFT JOIN txn_numbers ON txn_numbers.txn = id
"""
_ROWS = f"""
    SELECT id AS txn_id, {_COLUMNS} FROM txns {_MORE}
    LEFT JOIN txn_owners ON txn_owners.txn = id
"""
# By the index of owners: it is in the order of ids for each of them.
_OWNED = f"""
    SELECT txn_owners.txn AS txn_id, {_COLUMNS} FROM txn_owners
    CROSS JOIN txns ON id = txn_owners.txn {_MORE}
"""
FIND = f"{_ROWS} WHERE id = ?"
RESULT = "SELECT result FROM txns WHERE id = ?"
# Adds nothing if the id is used.
ADD = f"""
    INSERT OR IGNORE INTO txns VALUES (
        :id, :log, :group, :only_log, '{State.OPEN}', NULL, :begun, :expires, :expires, '[]', 0, 0,
        NULL, NULL, NULL, NULL, NULL
    )
"""
USED = "SELECT id FROM txns WHERE id IN (SELECT value FROM json_each(?))"
ADD_FENCE = "INSERT INTO txn_fences VALUES (?, ?, ?)"
OWNERS = "txn_owners"
SET_BEGIN = "UPDATE txns SET begin_offset = :offset, begin_stamp = :stamp WHERE id = :id"
SET_WRITTEN = "UPDATE txns SET logs = :logs, records = :records, octets = :octets WHERE id = :id"
SET_COMMITTED = f"""
    UPDATE txns SET state = '{State.COMMITTED}', ends = :now, records = :records,
    commit_offset = :offset, commit_stamp = :stamp, result = :result WHERE id = :id
"""
# A row of a transaction committed when it begins.
COMMITTED_ROW = """txns (
    id, log, grp, only_log, state, begun, expires, ends, logs, records, octets,
    begin_offset, begin_stamp, commit_offset, commit_stamp, result
)"""
SET_ABORTED = f"""
    UPDATE txns SET state = '{State.ABORTED}', reason = :reason, ends = :now WHERE id = :id
"""


def select(*conditions: str, is_by_owner: bool = False) -> str:
    """Return the SQL of the rows under these conditions, the newest first.

    ``is_by_owner``: an index finds the rows of the owner, otherwise those in the state.
    """
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = _OWNED if is_by_owner else _ROWS
    return f"{rows} {where} ORDER BY txn_id DESC LIMIT :limit"


IN_STATE = "state = :state"
IN_GROUP = "grp = :group"
BEFORE = "txn_id < :before"
OF_OWNER = "owner = :owner"
STATS = f"SELECT count(*), coalesce(min(begun), 0) FROM txns WHERE state = '{State.OPEN}'"

# --- Numbers of keys ---

ADD_NUMBER = "INSERT INTO txn_numbers VALUES (?, ?, ?, 0)"
NEWEST = f"{_ROWS} WHERE key = ? AND newest"
# Without its rows: only the index.
COUNT_KEYS = "SELECT count(*) FROM txn_numbers WHERE newest"
KEYS = f"""
    {_ROWS} WHERE newest AND key > :after AND (:owner IS NULL OR owner = :owner)
    ORDER BY key LIMIT :limit
"""
# The newest transaction of a key ends when another one replaces it.
REPLACE_NEWEST = (
    """
    UPDATE txns SET ends = :now
    WHERE id IN (SELECT txn FROM txn_numbers WHERE key = :key AND newest)
    """,
    "UPDATE txn_numbers SET newest = 0 WHERE key = :key AND newest",
)
SET_NEWEST = (
    "UPDATE txn_numbers SET newest = 1 WHERE txn = :id",
    f"UPDATE txns SET ends = {NEVER} WHERE id = :id",
)

# --- Keeping ---

_OVERDUE = f"state = '{State.OPEN}' AND ends < :horizon AND {is_over('ends')}"
_OLD = f"state IN ('{State.COMMITTED}', '{State.ABORTED}') AND ends < :old"
# The clock was set back since they began. The ids tell it by an index.
_BEGUN_AHEAD = f"state = '{State.OPEN}' AND id >= {FIRST_ID} + (:ahead << {RANDOM_BITS})"
DATE_AGAIN = f"""
    UPDATE txns SET begun = :now, expires = :now + expires - begun, ends = :now + expires - begun
    WHERE {_BEGUN_AHEAD} AND begun > :ahead
"""
OVERDUE = f"SELECT id FROM txns WHERE {_OVERDUE} ORDER BY ends LIMIT :limit"
WORK = f"""
    SELECT EXISTS (SELECT 1 FROM txns WHERE {_OVERDUE})
    OR EXISTS (SELECT 1 FROM txns WHERE {_OLD})
    OR EXISTS (SELECT 1 FROM txns WHERE {_BEGUN_AHEAD} AND begun > :ahead)
"""
FORGET = f"DELETE FROM txns WHERE id IN (SELECT id FROM txns WHERE {_OLD} LIMIT :limit)"

# The commit logs of idle groups. `:first` to `:end`: the range of their names.
_BUSY = f"SELECT log FROM txns WHERE state = '{State.OPEN}'"
_IDLE_FROM = "(:now - max(:idle, 1000 * coalesce(topics.ttl, catalogue.ttl)))"
IDLE = f"""
    SELECT log FROM topics CROSS JOIN catalogue
    WHERE namespace = :namespace AND name >= :first AND name < :end AND log NOT IN ({_BUSY})
    AND head_stamp < {oldest(_IDLE_FROM)} << {SEQUENCE_BITS}
"""

# --- Records ---

KNOWN = """
    SELECT lsn, digest FROM records
    WHERE txn = ? AND lsn IN (SELECT value FROM json_each(?))
"""
# `[[log, [[lsn, digest], …]], …]`, in the order of the messages just placed.
ADD_MESSAGES = f"""
    INSERT INTO records
    SELECT :txn, json_extract(given.value, '$[0]'), log, json_extract(given.value, '$[1]'),
    {BASE} + head + 1 + given.key, NULL, NULL, NULL
    FROM json_each(:body) AS batch
    CROSS JOIN placing ON log = json_extract(batch.value, '$[0]')
    CROSS JOIN json_each(batch.value, '$[1]') AS given
"""
# See the table `entries`. The unary plus: the range of places is small, the index is not.
HIDE_END = """
    UPDATE entries SET expires = -expires
    WHERE place >= :first AND place < :first + :count AND +expires > 0
"""
# `[[lsn, digest, event, key, data], …]`
ADD_OPERATIONS = """
    INSERT INTO records
    SELECT :txn, json_extract(value, '$[0]'), 0, json_extract(value, '$[1]'), NULL,
    json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]')
    FROM json_each(:body)
"""
COUNT = "SELECT count(*) FROM records WHERE txn = ? AND lsn < ?"
# The smallest missing lsn, if there is a larger one.
FIRST_MISSING = """
    SELECT min(number) FROM (
        SELECT lsn, row_number() OVER (ORDER BY lsn) - 1 AS number FROM records WHERE txn = ?
    ) WHERE lsn > number
"""
# Number of the records in each log, and the smallest and the largest lsn.
BY_LOG = "SELECT log, count(*), min(lsn), max(lsn) FROM records WHERE txn = ? GROUP BY log"
# `given`: the logs of topics. Their places in this array are the indexes.
ORDER = f"""
    WITH given (log, number) AS MATERIALIZED (SELECT value, key FROM json_each(:logs)),
    indexes (number) AS (
        SELECT coalesce(number, {OPLOG_INDEX}) FROM records LEFT JOIN given USING (log)
        WHERE txn = :txn ORDER BY lsn
    )
    SELECT json_group_array(number) FROM indexes
"""
REMOVE_PAST = "DELETE FROM records WHERE txn = ? AND lsn >= ?"
REMOVE_OF_LOGS = """
    DELETE FROM records WHERE txn = ? AND log IN (SELECT value FROM json_each(?))
"""
REMOVE_ALL = "DELETE FROM records WHERE txn = ?"

# --- Operations of a commit ---

# As the appender of `statements` does, but only the entries name the transaction, not the states.
_IDENTITY = """',"txn":"' || :txn || '","lsn":' || {lsn} || ',"of":' || :count || '}}'"""
_OF_ENTRY = _IDENTITY.format(lsn="json_extract(data, '$.lsn')")
APPEND_OPERATIONS = (
    # After the first one SQLite gives each row the next number. A window function or a sort would
    # copy all operations into memory.
    f"""
    INSERT INTO ops
    SELECT iif(lsn = :first, head + 1, NULL), max(:now, head_ts), event, key,
    substr(data, 1, length(data) - 1) || {_IDENTITY.format(lsn="lsn")}
    FROM logs CROSS JOIN records WHERE name = 'ops' AND txn = :txn AND log = 0 ORDER BY lsn
    """,
    f"""
    INSERT INTO states (key, n, ts, deleted, data)
    SELECT key, seq, ts, event = 'delete',
    substr(data, 1, length(data) - length({_OF_ENTRY})) || '}}' FROM ops
    WHERE seq > (SELECT head FROM logs WHERE name = 'ops') ORDER BY seq
    {REPLACE_STATE}
    """,
    end_opening(":now", ":count"),
    advance(":now", ":count"),
)

# --- Whole transactions ---

HEADS = """
    SELECT log, head, head_stamp FROM topics
    WHERE log IN (SELECT value FROM json_each(?)) AND name IS NOT NULL
"""
# `[[log, head, head_stamp], …]`. The unary plus lets SQLite look up topics by log.
SET_HEADS = """
    UPDATE topics SET head = json_extract(value, '$[1]'), head_stamp = json_extract(value, '$[2]')
    FROM json_each(?) WHERE topics.log = +json_extract(value, '$[0]')
"""
# As the appender of topics does.
ADD_DATED = f"""
    INSERT INTO dated SELECT :log & {MAX_LOG}, :last, :first, present_ms()
    WHERE :stamp > (present_ms() << {SEQUENCE_BITS}) + {MAX_LEAD}
"""
RECORDS = "records (txn, lsn, log, digest, place)"
_GIVEN = [f"json_extract(value, '$[{at}]')" for at in range(4)]
# The operations of whole transactions: `[[event, key, data, identity], …]`.
_AT_HEAD = "FROM logs CROSS JOIN json_each(:body) AS given WHERE name = 'ops'"
APPEND_WHOLE_OPERATIONS = (
    f"""
    INSERT INTO ops
    SELECT head + 1 + given.key, max(:now, head_ts), {_GIVEN[0]}, {_GIVEN[1]},
    substr({_GIVEN[2]}, 1, length({_GIVEN[2]}) - 1) || {_GIVEN[3]} {_AT_HEAD}
    """,
    f"""
    INSERT INTO states (key, n, ts, deleted, data)
    SELECT {_GIVEN[1]}, head + 1 + given.key, max(:now, head_ts), {_GIVEN[0]} = 'delete',
    {_GIVEN[2]} {_AT_HEAD} ORDER BY given.key
    {REPLACE_STATE}
    """,
    *APPEND_OPERATIONS[2:],
)
