"""The rows of transactions, each function one or two statements in the caller's transaction."""

import sqlite3
import zlib
from array import array
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from random import getrandbits

import msgspec

from oplogd.clock.ages import Present
from oplogd.errors import StoreUnavailableError
from oplogd.model.lease import Fence
from oplogd.model.message_id import stamp
from oplogd.model.names import SYSTEM
from oplogd.model.once import OnceNumber
from oplogd.model.transaction import FIRST_ID, GROUP_PREFIX, Reason, State, no_transaction
from oplogd.store.sqlite.file import ages as age_statements
from oplogd.store.sqlite.file.connection import transaction as write_transaction
from oplogd.store.sqlite.file.parts import as_json, insert
from oplogd.store.sqlite.pointers.rows import optional_mark
from oplogd.store.sqlite.topics import catalogue
from oplogd.store.sqlite.transactions import statements as sql
from oplogd.store.transactions import (
    IDLE_MS,
    Commit,
    CommittedLog,
    NewTransaction,
    OpenStats,
    OperationRun,
    Transaction,
)

# Bytes.
_SMALL_RESULT = 4096

_Row = tuple[
    int, int, str | None, int | None, str, str | None, int, int, str, int, int,
    int | None, int | None, int | None, int | None, str | None, int | None, str | None, int | None,
    str | None,
]  # fmt: skip


class _Result(msgspec.Struct, frozen=True, gc=False):
    """The places of a commit, in one column. ``order``: the text of a JSON array."""

    logs: tuple[CommittedLog, ...]
    runs: tuple[OperationRun, ...]
    order: msgspec.Raw


_decode_result = msgspec.json.Decoder(_Result).decode
_decode_numbers = msgspec.json.Decoder(tuple[int, ...]).decode


def add(db: sqlite3.Connection, new: NewTransaction, now: int) -> Transaction:
    """Add the row of an open transaction, without marks."""
    given = {
        "log": new.log,
        "group": new.group,
        "only_log": new.only_log,
        "begun": now,
        "expires": now + new.timeout_ms,
    }
    added = 0
    while not added:
        id_ = FIRST_ID + (now << sql.RANDOM_BITS) + getrandbits(sql.RANDOM_BITS)
        added = db.execute(sql.ADD, given | {"id": id_}).rowcount
    if new.fence is not None:
        db.execute(sql.ADD_FENCE, (id_, *new.fence))
    if new.once is not None:
        db.execute(sql.ADD_NUMBER, (id_, *new.once))
    if new.owner is not None:
        _insert(db, sql.OWNERS, [(id_, new.owner)])
    return find(db, id_)


def find(db: sqlite3.Connection, id_: int) -> Transaction:
    """Return a transaction. Raises TransactionNotFoundError."""
    row = db.execute(sql.FIND, (id_,)).fetchone()
    if row is None:
        raise no_transaction(id_)
    return _transaction(row)


def select(
    db: sqlite3.Connection,
    state: State | None,
    group: str | None,
    limit: int,
    before: int | None,
    owner: str | None,
) -> list[Transaction]:
    given = {"state": state, "group": group, "before": before, "owner": owner, "limit": limit}
    known = {
        "state": sql.IN_STATE,
        "group": sql.IN_GROUP,
        "before": sql.BEFORE,
        "owner": sql.OF_OWNER,
    }
    conditions = [condition for name, condition in known.items() if given[name] is not None]
    # Most are committed. The others are few.
    is_by_owner = owner is not None and state in (None, State.COMMITTED)
    statement = sql.select(*conditions, is_by_owner=is_by_owner)
    return list(map(_transaction, db.execute(statement, given)))


def newest(db: sqlite3.Connection, key: str) -> Transaction | None:
    """Return the newest committed transaction of a key."""
    row = db.execute(sql.NEWEST, (key,)).fetchone()
    return None if row is None else _transaction(row)


def keys(db: sqlite3.Connection, after: str, limit: int, owner: str | None) -> list[Transaction]:
    """Return the newest committed transaction of each key past one."""
    given = {"after": after, "limit": limit, "owner": owner}
    return list(map(_transaction, db.execute(sql.KEYS, given)))


def count_keys(db: sqlite3.Connection) -> int:
    (count,) = db.execute(sql.COUNT_KEYS).fetchone()
    return int(count)


def set_newest(db: sqlite3.Connection, id_: int, key: str, now: int) -> None:
    """Let a committed transaction be the newest one of its key."""
    given = {"id": id_, "key": key, "now": now}
    for statement in (*sql.REPLACE_NEWEST, *sql.SET_NEWEST):
        db.execute(statement, given)


def forget_key(db: sqlite3.Connection, key: str, now: int) -> bool:
    """Forget a key. Return whether there was one."""
    found = 0
    for statement in sql.REPLACE_NEWEST:
        found = db.execute(statement, {"key": key, "now": now}).rowcount
    return bool(found)


def stats(db: sqlite3.Connection) -> OpenStats:
    return OpenStats(*db.execute(sql.STATS).fetchone())


def packed(logs: Sequence[CommittedLog], runs: Sequence[OperationRun], order: str) -> bytes:
    """Return the result of a commit for its column. ``order``: as a JSON array."""
    result = _Result(tuple(logs), tuple(runs), msgspec.Raw(order.encode()))
    encoded = msgspec.json.encode(result)
    if len(encoded) > _SMALL_RESULT:
        return zlib.compress(encoded, level=1)
    # With little memory: to ask for much takes longer than to use it.
    made = zlib.compressobj(1, zlib.DEFLATED, 9, 1)
    return made.compress(encoded) + made.flush()


def add_committed(db: sqlite3.Connection, commits: Sequence[Commit]) -> None:
    """Add the rows of transactions committed when they begin. Their ids have no rows."""
    added = []
    for commit in commits:
        transaction = commit.transaction
        begin, decided = transaction.begin, transaction.commit
        assert begin is not None
        assert decided is not None
        added.append(
            (
                *transaction[:4],
                State.COMMITTED.value,
                transaction.begun_ms,
                transaction.expires_ms,
                transaction.begun_ms,
                as_json(transaction.logs),
                transaction.records,
                transaction.bytes,
                begin.offset,
                stamp(begin.ms, begin.sequence),
                decided.offset,
                stamp(decided.ms, decided.sequence),
                packed(commit.logs, commit.runs, as_json([*commit.order])),
            )
        )
    _insert(db, sql.COMMITTED_ROW, added)
    owners = ((each.transaction.id, each.transaction.owner) for each in commits)
    _insert(db, sql.OWNERS, [each for each in owners if each[1] is not None])


def _insert(db: sqlite3.Connection, table: str, added: Sequence[tuple[object, ...]]) -> None:
    for statement, values in insert(table, added):
        db.execute(statement, values)


def idle_logs(db: sqlite3.Connection, now: Present) -> list[int]:
    """Return the commit logs of the idle groups."""
    given = age_statements.given(now) | {
        "namespace": SYSTEM,
        "first": GROUP_PREFIX,
        "end": GROUP_PREFIX[:-1] + chr(ord(GROUP_PREFIX[-1]) + 1),
        "idle": IDLE_MS,
    }
    return [log for (log,) in db.execute(sql.IDLE, given)]


def delete_idle(db: sqlite3.Connection, logs: Collection[int], now: Present) -> int:
    """Delete the logs if they are still idle, in one transaction. Return their number."""
    with write_transaction(db):
        idle = set(idle_logs(db, now)).intersection(logs)
        catalogue.end_old(db, idle)
    return len(idle)


def committed(db: sqlite3.Connection, transaction: Transaction) -> Commit:
    """Return the commit of a committed transaction."""
    (packed,) = db.execute(sql.RESULT, (transaction.id,)).fetchone()
    with _naming(transaction.id):
        result = _decode_result(zlib.decompress(packed))
        order = array("I", _decode_numbers(result.order))
    return Commit(transaction, result.logs, result.runs, order)


def _transaction(row: _Row) -> Transaction:
    with _naming(row[0]):
        return _read(row)


@contextmanager
def _naming(id_: int) -> Iterator[None]:
    """Raise StoreUnavailableError for an unreadable row."""
    try:
        yield
    except (TypeError, ValueError, msgspec.MsgspecError, zlib.error) as error:
        raise StoreUnavailableError(
            f"the row of transaction {id_} is damaged, restore a sound copy: {error}"
        ) from None


def _read(row: _Row) -> Transaction:
    return Transaction(
        id=row[0],
        log=row[1],
        group=row[2],
        only_log=row[3],
        state=State(row[4]),
        reason=None if row[5] is None else Reason(row[5]),
        begun_ms=row[6],
        expires_ms=row[7],
        logs=_decode_numbers(row[8]),
        records=row[9],
        bytes=row[10],
        begin=optional_mark(row[11], row[12]),
        commit=optional_mark(row[13], row[14]),
        fence=None if row[15] is None or row[16] is None else Fence(row[15], row[16]),
        once=None if row[17] is None or row[18] is None else OnceNumber(row[17], row[18]),
        owner=row[19],
    )
