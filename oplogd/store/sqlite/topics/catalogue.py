"""The catalogue of topics, each function one call on a connection."""

import sqlite3
from collections.abc import Collection

import msgspec

from oplogd.clock.ages import MAX_LEAD_MS, Present
from oplogd.errors import NoLogNumberError
from oplogd.model.message_id import stamp
from oplogd.model.names import TopicName, no_topic, topic_exists
from oplogd.model.pointer import DEFAULT_RULES, PointerRules
from oplogd.store.numbers import begin_of, is_log, used_up
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics import statements as sql
from oplogd.store.sqlite.topics.bound_statements import SET_MAX, TOTAL_LOG
from oplogd.store.topics import Namespace, Topic, TopicStats

# Logs that one creation looks at for a free number: some hundredths of a second.
_LOOKED_AT = 50_000


def _topic(row: tuple[int, str, str, int | None, int, int | None, int | None]) -> Topic:
    log, namespace, name, ttl, is_on, timeout, max_bytes = row
    rules = PointerRules(bool(is_on), timeout)
    return Topic(log, TopicName(namespace, name), ttl, rules, max_bytes)


def create(
    db: sqlite3.Connection,
    name: TopicName,
    ttl: int | None,
    pointers: PointerRules,
    max_bytes: int | None,
    now: int,
) -> Topic:
    with transaction(db):
        if find(db, name):
            raise topic_exists(name)
        _, _, last_log, ended_stamp = db.execute(sql.CATALOGUE).fetchone()
        given = {"log": last_log + 1, "limit": _LOOKED_AT}
        log, is_free = db.execute(sql.NEXT_LOG, given).fetchone()
        if is_free and is_log(log):
            row = {"log": log, "namespace": name.namespace, "name": name.topic, "ttl": ttl}
            # One more than any old id: so a position at the last old one has a gap.
            ahead = db.execute(sql.ENDED_AHEAD, name).fetchone()
            last = max(ended_stamp, stamp(now, 0), ahead[0] if ahead else 0)
            db.execute(sql.CREATE, row | {"begin": begin_of(log), "stamp": last})
            _set_rules(db, log, pointers)
            db.execute(SET_MAX, (max_bytes, log))
            db.execute(sql.COUNT_CHANGE)
        # If none is free, the next creation looks at the numbers that follow.
        db.execute(sql.USE_LOG, (log,))
    if not is_free or not is_log(log):
        raise NoLogNumberError(used_up("the store"))
    return Topic(log, name, ttl, pointers, max_bytes)


def change(
    db: sqlite3.Connection,
    name: TopicName,
    ttl: int | None,
    pointers: PointerRules,
    max_bytes: int | None,
    now: Present,
) -> Topic:
    with transaction(db):
        topic = _existing(db, name)
        topic_entries.raise_floor(db, topic.log, now)  # a longer time to live brings nothing back
        db.execute(sql.SET_TTL, (ttl, topic.log))
        _set_rules(db, topic.log, pointers)
        db.execute(SET_MAX, (max_bytes, topic.log))
        db.execute(sql.COUNT_CHANGE)
    return topic._replace(ttl=ttl, pointers=pointers, max_bytes=max_bytes)


def delete(db: sqlite3.Connection, name: TopicName, now: int) -> None:
    with transaction(db):
        topic = _existing(db, name)
        (ended,) = db.execute(sql.ENDED, (topic.log,)).fetchone()
        if ended > stamp(now + MAX_LEAD_MS, 0):  # concerns no topic but the next of this name
            db.execute(sql.END_AHEAD, (*name, ended))
        else:
            db.execute(sql.END, (ended,))
        db.execute(sql.UNNAME, (topic.log,))
        db.execute(sql.COUNT_CHANGE)


def set_default_ttl(db: sqlite3.Connection, ttl: int, now: Present) -> None:
    """Set the time to live in seconds of topics without their own, in the caller's transaction."""
    if default_ttl(db) == ttl:
        return
    for (log,) in db.execute(sql.WITH_DEFAULT_TTL).fetchall():
        topic_entries.raise_floor(db, log, now)
    db.execute(sql.SET_DEFAULT_TTL, (ttl,))
    db.execute(sql.COUNT_CHANGE)


def set_total_bound(db: sqlite3.Connection, max_bytes: int) -> None:
    """Set the bound of all topics together in bytes; 0: none."""
    db.execute(SET_MAX, (max_bytes or None, TOTAL_LOG))


def default_ttl(db: sqlite3.Connection) -> int:
    ttl: int = db.execute(sql.CATALOGUE).fetchone()[0]
    return ttl


def find(db: sqlite3.Connection, name: TopicName) -> Topic | None:
    row = db.execute(sql.FIND, name).fetchone()
    return _topic(row) if row else None


def in_namespace(
    db: sqlite3.Connection, namespace: str, after: str, limit: int | None
) -> list[Topic]:
    given = {"namespace": namespace, "after": after, "limit": -1 if limit is None else limit}
    return list(map(_topic, db.execute(sql.IN_NAMESPACE, given)))


def namespaces(db: sqlite3.Connection, after: str, limit: int) -> list[Namespace]:
    return [Namespace(*row) for row in db.execute(sql.NAMESPACES, (after, limit))]


def current(db: sqlite3.Connection, logs: Collection[int]) -> dict[int, Topic]:
    given = msgspec.json.encode(list(logs)).decode()
    return {row[0]: _topic(row) for row in db.execute(sql.CURRENT, (given,))}


def count(db: sqlite3.Connection) -> TopicStats:
    (topics,) = db.execute(sql.COUNT).fetchone()
    (numbers,) = db.execute(sql.COUNT_NUMBERS).fetchone()
    return TopicStats(topics, numbers)


def _set_rules(db: sqlite3.Connection, log: int, pointers: PointerRules) -> None:
    if pointers == DEFAULT_RULES:
        db.execute(sql.RESET_RULES, (log,))
    else:
        db.execute(sql.SET_RULES, (log, *pointers))


def _existing(db: sqlite3.Connection, name: TopicName) -> Topic:
    topic = find(db, name)
    if topic is None:
        raise no_topic(name)
    return topic
