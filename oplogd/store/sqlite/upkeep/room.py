"""Room for an append: a topic over its bound first lets its oldest entries leave, or refuses."""

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext

from oplogd.clock.ages import Present
from oplogd.errors import TopicFullError
from oplogd.store.bounds import full_topic, full_total, slack
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.file.parts import STATEMENT_BYTES, as_json
from oplogd.store.sqlite.topics import bound_statements as sql
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics.statements import MAX_STAMP
from oplogd.store.sqlite.upkeep import leaving
from oplogd.store.topics import ENTRY_BYTES, Full, MessageBatch, Outcome, Refused

# Appends of more messages ask for bounds by a statement of their own.
_FEW = 64


def append(
    db: sqlite3.Connection, batches: Sequence[MessageBatch], present: Present
) -> list[Outcome]:
    """Append the batches with room: see ``topic_entries.append``."""
    messages = [message for batch in batches for message in batch.messages]
    if len(messages) > _FEW or sum(len(data) for data, _ in messages) > STATEMENT_BYTES:
        return _append_over(db, batches, over_bound(db), present)
    outcomes = topic_entries.append(db, batches, present.ms, True)
    if Refused.DELETED in outcomes and (over := over_bound(db)):
        places = [place for place, each in enumerate(outcomes) if each is Refused.DELETED]
        again = _append_over(db, [batches[place] for place in places], over, present)
        for place, outcome in zip(places, again, strict=True):
            outcomes[place] = outcome
    return outcomes


def _append_over(
    db: sqlite3.Connection, batches: Sequence[MessageBatch], over: Collection[int], present: Present
) -> list[Outcome]:
    """Append batches. ``over``: the logs over their bound."""
    full: dict[int, Full] = {}
    for log in dict.fromkeys(batch.log for batch in batches):
        if sql.TOTAL_LOG in over and leaving.find(db, log):
            full[log] = Full(_full_total(db))
        elif log in over:
            messages = [each for batch in batches if batch.log == log for each in batch.messages]
            size = sum(len(data) for data, _ in messages)
            if reason := _make_room(db, log, len(messages), size, present):
                full[log] = Full(reason)
    rest = [batch for batch in batches if batch.log not in full]
    placed = iter(topic_entries.append(db, rest, present.ms) if rest else ())
    return [full[batch.log] if batch.log in full else next(placed) for batch in batches]


def require(db: sqlite3.Connection, messages: Iterable[tuple[int, int]], present: Present) -> None:
    """Raise TopicFullError unless these topics have room, in the caller's transaction.

    ``messages``: the log and the bytes of each one.
    """
    added: dict[int, list[int]] = {}
    for log, size in messages:
        added.setdefault(log, []).append(size)
    if not added:
        return
    bounded = dict(db.execute(sql.BOUNDED, (as_json([sql.TOTAL_LOG, *added]),)).fetchall())
    if bounded.pop(sql.TOTAL_LOG, False):
        raise TopicFullError(_full_total(db))
    for log in bounded:
        if reason := _make_room(db, log, len(added[log]), sum(added[log]), present):
            raise TopicFullError(reason)


def over_bound(db: sqlite3.Connection) -> set[int]:
    """Return the logs over their bound."""
    return {log for (log,) in db.execute(sql.OVER).fetchall()}


def shrink(
    db: sqlite3.Connection, log: int, present: Present
) -> tuple[leaving.LeavingStep | None, str | None]:
    """Let some of the oldest entries of a topic leave, in the caller's transaction.

    Return the step, None if the topic is counted and keeps its bound; and the sentence for a topic
    still over it that nothing more may leave.
    """
    topic = leaving.find_counted(db, log)
    if topic is None or topic.max_bytes is None:
        return None, None
    if topic.size <= topic.max_bytes:
        return None if topic.counted >= topic.head else leaving.NOTHING, None
    excess = topic.size - topic.max_bytes
    step = leaving.leave(db, topic, excess + slack(topic.max_bytes), MAX_STAMP, present)
    reason = None
    if step.spare > topic.max_bytes:  # a large commit, or the bound was lowered
        left = leaving.find(db, log)
        assert left is not None
        then = leaving.leave(db, left, step.spare, MAX_STAMP, present, newest=True)
        removed, size = step.removed + then.removed, step.size + then.size
        step = then._replace(removed=removed, size=size)
    elif step.held_by is not None and step.size < excess:
        reason = full_topic(topic.name, topic.max_bytes, step.held_by)
    return step, reason


def _make_room(
    db: sqlite3.Connection, log: int, count: int, size: int, present: Present
) -> str | None:
    """Let twice as many entries and bytes leave as ``count`` messages of ``size`` bytes add.

    Return why they must be refused. Each step is a transaction, unless the caller has begun one.
    """
    steps = 1 + 2 * count // leaving.STEP_ENTRIES
    most = 1 + 2 * (count + size // ENTRY_BYTES) // leaving.STEP_ENTRIES
    left = 0
    for number in range(most):
        if number >= steps and left >= 2 * size:
            break
        with nullcontext() if db.in_transaction else transaction(db):
            step, reason = shrink(db, log, present)
        if step is None or reason is not None:
            return reason
        left += step.size
    return None


def _full_total(db: sqlite3.Connection) -> str:
    return full_total(db.execute(sql.TOTAL_MAX).fetchone()[0] or 0)
