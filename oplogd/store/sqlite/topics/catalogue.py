"""The catalogue of topics, each function one call on a connection."""

import sqlite3
from collections.abc import Collection

from oplogd.clock.ages import MAX_LEAD_MS, Present
from oplogd.errors import NoLogNumberError
from oplogd.model.message_id import stamp
from oplogd.model.names import TopicName, no_topic, topic_exists
from oplogd.model.pointer import DEFAULT_RULES, PointerRules
from oplogd.store.numbers import MAX_LOG, begin_of, is_log, used_up
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.file.parts import as_json
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics.bound_statements import SET_MAX
from oplogd.store.topics import Namespace, Topic

# Logs checked by one creation for a free number: some hundredths of a second.
_LOOKED_AT = 50_000

# Topics without a row of rules have the default ones.
_TOPIC = """
    SELECT log, namespace, name, ttl, coalesce(is_on, 1), timeout, max_bytes
    FROM topics LEFT JOIN pointer_rules USING (log) LEFT JOIN topic_sizes USING (log)
"""
_FIND = f"{_TOPIC} WHERE namespace = ? AND name = ?"
# A limit of -1: all.
_IN_NAMESPACE = (
    f"{_TOPIC} WHERE namespace = :namespace AND name > :after ORDER BY name LIMIT :limit"
)
_NAMESPACES = """
    SELECT namespace, count(*) FROM topics
    WHERE namespace > ? GROUP BY namespace ORDER BY namespace LIMIT ?
"""
_CURRENT = f"""
    {_TOPIC} WHERE log IN (SELECT value FROM json_each(?)) AND name IS NOT NULL
"""
_COUNT = "SELECT count(*) FROM topics WHERE name IS NOT NULL"
_COUNT_NUMBERS = "SELECT count(*) FROM topics"
_CATALOGUE = "SELECT ttl, version, last_log, ended_stamp FROM catalogue"
_COUNT_CHANGE = "UPDATE catalogue SET version = version + 1"
_USE_LOG = "UPDATE catalogue SET last_log = ?"
_SET_DEFAULT_TTL = "UPDATE catalogue SET ttl = ?"
_CREATE = """
    INSERT INTO topics VALUES (:log, :namespace, :name, NULL, :begin, :stamp, :begin, :stamp)
"""
# The first log from :log on whose number no topic has, or the last one of some looked at.
_IN_USE = f"SELECT 1 FROM topics WHERE (log & {MAX_LOG}) = (candidate.log & {MAX_LOG})"
_NEXT_LOG = f"""
    WITH RECURSIVE candidate (log) AS (
        SELECT :log UNION ALL SELECT log + 1 FROM candidate
        WHERE NOT log & {MAX_LOG} OR EXISTS ({_IN_USE}) LIMIT :limit
    )
    SELECT log, log & {MAX_LOG} AND NOT EXISTS ({_IN_USE})
    FROM candidate ORDER BY log DESC LIMIT 1
"""
_SET_TTL = "UPDATE topics SET ttl = ? WHERE log = ?"
_SET_RULES = "REPLACE INTO pointer_rules VALUES (?, ?, ?)"
_RESET_RULES = "DELETE FROM pointer_rules WHERE log = ?"
_WITH_DEFAULT_TTL = "SELECT log FROM topics WHERE name IS NOT NULL AND ttl IS NULL"
# Past all stamps in a topic.
_ENDED = "SELECT head_stamp + 1 FROM topics WHERE log = ?"
_END = "UPDATE catalogue SET ended_stamp = max(ended_stamp, ?)"
_END_AHEAD = "REPLACE INTO ended_ahead VALUES (?, ?, ?)"
_ENDED_AHEAD = "SELECT stamp FROM ended_ahead WHERE namespace = ? AND name = ?"
_UNNAME = "UPDATE topics SET namespace = NULL, name = NULL WHERE log = ?"


def _topic(row: tuple[int, str, str, int | None, int, int | None, int | None]) -> Topic:
    log, namespace, name, ttl, is_on, timeout, max_bytes = row
    rules = PointerRules(bool(is_on), timeout)
    return Topic(log, TopicName(namespace, name), ttl, rules, max_bytes)


def create(db: sqlite3.Connection, topic: Topic, now: int) -> Topic:
    """Create a topic. Return it with its log."""
    name = topic.name
    with transaction(db):
        if find(db, name):
            raise topic_exists(name)
        _, _, last_log, ended_stamp = db.execute(_CATALOGUE).fetchone()
        given = {"log": last_log + 1, "limit": _LOOKED_AT}
        log, is_free = db.execute(_NEXT_LOG, given).fetchone()
        if is_free and is_log(log):
            row = {"log": log, "namespace": name.namespace, "name": name.topic}
            # One more than any old id: so a position at the last old one has a gap.
            ahead = db.execute(_ENDED_AHEAD, name).fetchone()
            last = max(ended_stamp, stamp(now, 0), ahead[0] if ahead else 0)
            db.execute(_CREATE, row | {"begin": begin_of(log), "stamp": last})
            _set_properties(db, topic._replace(log=log))
        # If none is free, the next creation looks at the following numbers.
        db.execute(_USE_LOG, (log,))
    if not is_free or not is_log(log):
        raise NoLogNumberError(used_up("the store"))
    return topic._replace(log=log)


def change(db: sqlite3.Connection, topic: Topic, now: Present) -> Topic:
    """Set the properties of a topic. Return it with its log."""
    with transaction(db):
        topic = topic._replace(log=_existing(db, topic.name).log)
        topic_entries.raise_floor(db, topic.log, now)  # a longer time to live brings nothing back
        _set_properties(db, topic)
    return topic


def delete(db: sqlite3.Connection, name: TopicName, now: int) -> None:
    with transaction(db):
        topic = _existing(db, name)
        (ended,) = db.execute(_ENDED, (topic.log,)).fetchone()
        if ended > stamp(now + MAX_LEAD_MS, 0):  # concerns no topic but the next of this name
            db.execute(_END_AHEAD, (*name, ended))
        else:
            db.execute(_END, (ended,))
        db.execute(_UNNAME, (topic.log,))
        db.execute(_COUNT_CHANGE)


def end_old(db: sqlite3.Connection, logs: Collection[int]) -> None:
    """Delete topics whose stamps are not ahead, in the caller's transaction."""
    for log in logs:
        db.execute(_END, db.execute(_ENDED, (log,)).fetchone())
        db.execute(_UNNAME, (log,))
    if logs:
        db.execute(_COUNT_CHANGE)


def set_default_ttl(db: sqlite3.Connection, ttl: int, now: Present) -> None:
    """Set the time to live in seconds of topics without their own, in the caller's transaction."""
    if default_ttl(db) == ttl:
        return
    for (log,) in db.execute(_WITH_DEFAULT_TTL).fetchall():
        topic_entries.raise_floor(db, log, now)
    db.execute(_SET_DEFAULT_TTL, (ttl,))
    db.execute(_COUNT_CHANGE)


def default_ttl(db: sqlite3.Connection) -> int:
    ttl: int = db.execute(_CATALOGUE).fetchone()[0]
    return ttl


def find(db: sqlite3.Connection, name: TopicName) -> Topic | None:
    row = db.execute(_FIND, name).fetchone()
    return _topic(row) if row else None


def in_namespace(
    db: sqlite3.Connection, namespace: str, after: str = "", limit: int | None = None
) -> list[Topic]:
    given = {"namespace": namespace, "after": after, "limit": -1 if limit is None else limit}
    return list(map(_topic, db.execute(_IN_NAMESPACE, given)))


def namespaces(db: sqlite3.Connection, after: str, limit: int) -> list[Namespace]:
    return [Namespace(*row) for row in db.execute(_NAMESPACES, (after, limit))]


def current(db: sqlite3.Connection, logs: Collection[int]) -> dict[int, Topic]:
    given = as_json(list(logs))
    return {row[0]: _topic(row) for row in db.execute(_CURRENT, (given,))}


def count(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the number of existing topics, and of logs in use."""
    (topics,) = db.execute(_COUNT).fetchone()
    (numbers,) = db.execute(_COUNT_NUMBERS).fetchone()
    return topics, numbers


def _set_properties(db: sqlite3.Connection, topic: Topic) -> None:
    db.execute(_SET_TTL, (topic.ttl, topic.log))
    if topic.pointers == DEFAULT_RULES:
        db.execute(_RESET_RULES, (topic.log,))
    else:
        db.execute(_SET_RULES, (topic.log, *topic.pointers))
    db.execute(SET_MAX, (topic.max_bytes, topic.log))
    db.execute(_COUNT_CHANGE)


def _existing(db: sqlite3.Connection, name: TopicName) -> Topic:
    topic = find(db, name)
    if topic is None:
        raise no_topic(name)
    return topic
