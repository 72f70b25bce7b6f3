"""The numbers of transactions, each function in the caller's transaction of SQLite."""

import sqlite3

from oplogd.errors import OplogError, TooManyKeysError
from oplogd.model.once import (
    MAX_KEYS,
    OnceNumber,
    no_key,
    number_over,
    require_own,
    too_many_keys,
)
from oplogd.store.sqlite.file.shared_write import SharedStep
from oplogd.store.sqlite.transactions import rows
from oplogd.store.transaction_rules import refusal
from oplogd.store.transactions import Commit, Transaction


def committed(db: sqlite3.Connection, once: OnceNumber, owner: str | None) -> Transaction | None:
    """Return the transaction committed with a number, None if a transaction may begin with it.

    Raises TransactionConflictError if the key has another owner or a larger number has committed,
    and TooManyKeysError.
    """
    newest = rows.newest(db, once.key)
    if newest is None:
        if rows.count_keys(db) >= MAX_KEYS:
            raise TooManyKeysError(too_many_keys())
        return None
    require_own(once.key, owner, newest.owner)
    assert newest.once is not None
    if newest.once.number > once.number:
        raise number_over(once, newest.once.number)
    return newest if newest.once.number == once.number else None


def rival(db: sqlite3.Connection, once: OnceNumber, owner: str | None) -> Transaction | None:
    """Return the newest transaction of a key if it has this number or a larger one.

    Raises TransactionConflictError if the key has another owner.
    """
    newest = rows.newest(db, once.key)
    if newest is None or newest.once is None:
        return None
    require_own(once.key, owner, newest.owner)
    return newest if newest.once.number >= once.number else None


def answer(
    db: sqlite3.Connection, transaction: Transaction, winner: Transaction
) -> Commit | OplogError:
    """Return the answer to the commit of a transaction aborted because of another one."""
    return rows.committed(db, winner) if winner.once == transaction.once else refusal(transaction)


def forget_key(step: SharedStep, key: str, owner: str | None) -> None:
    """Forget a key, with an owner only its own one. Raises OnceKeyNotFoundError."""
    if owner is not None:
        newest = rows.newest(step.db, key)
        if newest is None or newest.owner != owner:
            raise no_key(key)
    if not rows.forget_key(step.db, key, step.present.ms):
        raise no_key(key)
