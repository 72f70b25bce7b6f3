"""Numbers of a key, each committed by one transaction at most. No I/O."""

from typing import NamedTuple

from oplogd.errors import OnceKeyNotFoundError, TransactionConflictError
from oplogd.model.names import check_name

# The largest whole number that every client reads exactly from JSON.
MAX_NUMBER = (1 << 53) - 1

# Keys of one store. Each costs a row that stays, with the newest transaction.
MAX_KEYS = 100_000


class OnceNumber(NamedTuple):
    """The condition of a transaction's commit.

    No transaction with this key and this number, or a larger one, has committed.
    """

    key: str
    number: int


def once_key(key: str, field: str = "key") -> str:
    """Return the name of a key: the rules of topics' names apply. Raises TopicError."""
    return check_name(key, field)


def require_own(key: str, owner: str | None, newest: str | None) -> None:
    """Raise TransactionConflictError if a key belongs to another owner.

    ``owner``: of a transaction that is to commit with the key; None: it may take any key over.
    ``newest``: of the newest committed transaction of the key.
    """
    if owner not in (None, newest):
        raise TransactionConflictError(f"the key {key} belongs to another client")


def number_over(once: OnceNumber, newest: int) -> TransactionConflictError:
    """Return the error for a number with a larger one committed."""
    return TransactionConflictError(
        f"number {once.number} of the key {once.key} is over; the newest is {newest}"
    )


def number_forgotten(once: OnceNumber, id_: int) -> TransactionConflictError:
    """Return the error for a committed number without its transaction.

    Only an agent of a version before keys forgets the transaction.
    """
    return TransactionConflictError(
        f"number {once.number} of the key {once.key} was committed by transaction {id_}, which is"
        " forgotten"
    )


def no_key(key: str) -> OnceKeyNotFoundError:
    return OnceKeyNotFoundError(f"no transaction has committed with the key {key}")


def too_many_keys() -> str:
    """Return the sentence for a new key if a store has MAX_KEYS."""
    return (
        f"the store has {MAX_KEYS:,} keys of transactions, the most; delete one with"
        " DELETE /v1/once/KEY"
    )
