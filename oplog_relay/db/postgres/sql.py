"""The statements of an outbox in PostgreSQL, and the settings of its sessions.

Names of the table and its columns are in braces: ``id``, ``leader_id`` and others of ``Names``.
"""

# The conditions of statements.
FOREIGN = "({leader_id} IS NULL OR {leader_id} < %(first)s OR {leader_id} > %(last)s)"
# Ids and stamps are judged apart, for the sake of the plan. A leader ends its term when a mark
# returns an id it holds, so no row can have the id of one and the stamp of another.
MINE = "{id} = ANY (%(ids)s::bigint[]) AND {leader_id} = ANY (%(stamps)s::uuid[])"
# A NULL key counts as empty: see ``rows``. Two keys are one if they have the same bytes,
# whatever the collation of the column says.
KEY = "coalesce({key}::text, '') COLLATE \"C\""
NOT_PASSED = f"{KEY} <> ALL (%(passed)s::text[])"
# Rows of a purge still in the table, and whether they have one of its stamps.
LEFT = """
SELECT {id}::bigint, coalesce({leader_id} = ANY (%(stamps)s::uuid[]), false)
FROM {table} WHERE {id} = ANY (%(ids)s::bigint[])
"""

# The table itself may be locked, too: the statement waits, as long as ``statement_timeout`` allows.
WAIT = "SET LOCAL lock_timeout = 0"
FREE = f"""
SELECT {{id}}::bigint, coalesce({{key}}::text, '') FROM {{table}}
WHERE {FOREIGN} AND {NOT_PASSED}
ORDER BY {{id}} LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
"""
# Rows visible since then count as locked, too.
LOCKED = f"""
SELECT {{id}}::bigint, coalesce({{key}}::text, '') FROM {{table}}
WHERE {FOREIGN} AND {NOT_PASSED}
    AND {{id}} <= %(through)s AND {{id}} <> ALL (%(free)s::bigint[])
ORDER BY {{id}}
"""
FREE_OF_MINE = f"""
SELECT {{id}}::bigint FROM {{table}} WHERE {MINE} ORDER BY {{id}} FOR UPDATE SKIP LOCKED
"""
DELETE = "DELETE FROM {table} WHERE {id} = ANY (%(free)s::bigint[])"

# Session-wide: the server must give up before the relay does (``lane.DEADLINE``).
SETTINGS = {
    "TimeZone": "UTC",
    "default_transaction_isolation": "read committed",
    # Scans follow the index on the ids even if the table was empty when they were planned.
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": "8s",
    # A mark commits once its rows are sent. Rows of a frozen or disconnected relay would stay
    # locked: ``statement_timeout`` does not end a server during a wait for its client.
    "tcp_user_timeout": "8s",
}
# If a crash of the server undoes a mark, the next mark repeats it.
SETTINGS_OF_MARK = {**SETTINGS, "synchronous_commit": "off"}
# A purge must be: rows would come back and be sent after later rows of their keys.
SET_SYNCHRONOUS = """
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
# Older servers lack some settings. One in the URL's "options" has come from the client already.
SET_KNOWN = """
SELECT set_config(name, wanted.value, false)
FROM unnest(%s::text[], %s::text[]) AS wanted (name, value) JOIN pg_settings USING (name)
WHERE source <> 'client'
"""
_STAMP = """
UPDATE {{table}} SET {{leader_id}} = %(stamp)s
WHERE {{id}} = ANY ({})
RETURNING {{id}}::bigint, extract(epoch FROM coalesce({{create_time}}, now()))::float8,
    {{topic}}::text, {{key}}::text, {{value}}::text, {{header_keys}}::text[],
    {{header_values}}::text[]
"""
_LOWEST = """ARRAY(
    SELECT {{id}} FROM {{table}} WHERE {} ORDER BY {{id}} LIMIT %(limit)s FOR NO KEY UPDATE
)"""
MARK = _STAMP.format(_LOWEST.format(FOREIGN))
MARK_OTHERS = _STAMP.format(_LOWEST.format(f"{FOREIGN} AND {NOT_PASSED}"))
STAMP_IDS = _STAMP.format("%(ids)s::bigint[]")
PURGE = f"DELETE FROM {{table}} WHERE {MINE}"
_RESET = """
UPDATE {{table}} SET {{leader_id}} = NULL
WHERE {{id}} = ANY (ARRAY(
    SELECT {{id}} FROM {{table}} WHERE {} ORDER BY {{id}} FOR NO KEY UPDATE {}
))
"""
_OF_LEADER = "{leader_id} BETWEEN %(first)s AND %(last)s"
RESET_ALL = _RESET.format(_OF_LEADER, "SKIP LOCKED")
# These fail at a locked row. Without it, later rows of its key would be sent first.
RESET_ROWS = _RESET.format(MINE, "")
RESET_KEY = _RESET.format(f"{_OF_LEADER} AND {KEY} = %(key)s", "")
BACKLOG = """
SELECT (SELECT count(*) FROM (SELECT {id} FROM {table} ORDER BY {id} LIMIT %(most)s) head),
    (SELECT (extract(epoch FROM clock_timestamp()) - extract(epoch FROM {create_time}))::float8
     FROM {table} ORDER BY {id} LIMIT 1)
"""
# The number of a server stays the same on its replicas. Names are quoted if they have blanks.
IDENTITY = """
SELECT concat_ws(' ', system_identifier, quote_ident(current_database()),
    relnamespace::regnamespace, quote_ident(relname))
FROM pg_control_system(), pg_class WHERE oid = to_regclass(%(table)s)
"""
IS_READ_ONLY = "SELECT current_setting('transaction_read_only') = 'on'"
COLUMNS = """
SELECT attname::text, format_type(atttypid, NULL),
    has_column_privilege(attrelid, attnum, 'SELECT'),
    has_column_privilege(attrelid, attnum, 'UPDATE'), has_table_privilege(attrelid, 'DELETE'),
    EXISTS (SELECT FROM pg_index WHERE indrelid = attrelid AND indkey[0] = attnum
        AND indisunique AND indpred IS NULL)
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
"""
