"""Transactions: their states, their records, and the data of their entries. No I/O."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import msgspec

from oplogd.errors import TransactionConflictError, TransactionNotFoundError
from oplogd.model.message import Message
from oplogd.model.names import SYSTEM, TopicName
from oplogd.model.operation import Operation

# Ids of transactions have 64 bits and begin here. Foreign transaction managers use smaller ones.
FIRST_ID = 1 << 62
MAX_ID = (1 << 63) - 1

DEFAULT_TIMEOUT_MS = 60_000
MAX_TIMEOUT_MS = 15 * 60_000

DEFAULT_GROUP = "default"
# Name of a group's commit log in the namespace of the built-in topics, before the group's name.
GROUP_PREFIX = "_txn."


class Isolation(StrEnum):
    """The records visible to a reader of a topic. The oplog is always read committed."""

    # Every record as soon as it is written.
    READ_UNCOMMITTED = "read_uncommitted"
    # The records of a transaction together, at its commit.
    READ_COMMITTED = "read_committed"


DEFAULT_ISOLATION = Isolation.READ_COMMITTED


class State(StrEnum):
    """The state of a transaction. From COMMITTING and ABORTED there is no way back."""

    OPEN = "open"
    # The commit is decided. Its entries may not be in all logs yet.
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Reason(StrEnum):
    """The reason of an abort."""

    CLIENT = "aborted by the client"
    TIMEOUT = "timed out"
    # The fence of its begin did not hold when it was to commit, or when another term began.
    FENCE = "aborted because the term of its lease is over"
    # Another transaction has committed its number of its key, a larger one, or is about to.
    ONCE = "aborted because another transaction has its number"


class Record(NamedTuple):
    """A record of a transaction.

    ``lsn``: number of the record in its transaction, from 0. ``log``: the log of its topic; 0 is
    the oplog, and then ``content`` is an operation. ``digest``: of the given topic and content.
    """

    lsn: int
    log: int
    content: Message | Operation
    digest: str


class Marker(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The data of a COMMIT, ABORT, BEGIN or PUBLISH entry.

    ``txn``: the transaction, or the pointer, in decimal digits. ``records``: number of its records
    or messages in this log. ``last``: the largest number among them (an ``lsn``, or a write stamp),
    -1 if there is none.

    Of a PUBLISH entry: ``after`` is the largest write stamp published, or rolled back, before.
    ``end`` is for stores that number stored messages: the number of the last one.
    """

    txn: str
    records: int = 0
    last: int = -1
    after: int = 0
    end: int = 0


_encode_marker = msgspec.json.Encoder().encode
# Decodes the data of an entry.
decode_marker: Callable[[str], Marker] = msgspec.json.Decoder(Marker).decode


def encode_marker(marker: Marker) -> str:
    return _encode_marker(marker).decode()


def group_log(group: str) -> TopicName:
    """Return the name of the commit log of a group."""
    return TopicName(SYSTEM, GROUP_PREFIX + group)


def is_group_log(name: TopicName) -> bool:
    """Return whether this is the name of the commit log of a group."""
    return name.namespace == SYSTEM and name.topic.startswith(GROUP_PREFIX)


def parse_id(text: str) -> int:
    """Read the id of a transaction: decimal digits. Raises TransactionNotFoundError."""
    if text.isascii() and text.isdecimal() and len(text) <= 19:
        number = int(text)
        if FIRST_ID <= number <= MAX_ID and str(number) == text:
            return number
    raise no_transaction(text)


def no_transaction(given: int | str) -> TransactionNotFoundError:
    return TransactionNotFoundError(f"there is no transaction {given}")


def lacking(id_: int, missing: int, records: int, first: int) -> TransactionConflictError:
    """Return the error for a commit of ``records``. ``first``: the smallest missing lsn."""
    return TransactionConflictError(
        f"transaction {id_} lacks {missing:,} of {records:,} records;"
        f" the first one that is missing has the lsn {first}"
    )


def reused(lsn: int) -> TransactionConflictError:
    return TransactionConflictError(f"lsn {lsn} was written before with other content")
