"""The row of a transaction: a document in ``oplog_txns``. No I/O.

``{_id, log, group, only, phase, reason, begun, expires, decided, logs, oplog, records, octets,
high, active, fence, fenced, once, outrun, owner, kept, unclean, begin, n, order, commit, marks,
runs}``.

``_id``: the transaction's id. ``log``: the commit log. ``only``: the one log of all records,
missing for any. ``begun``, ``expires`` and ``decided``: times in ms. ``logs``: the touched topics,
in the order of their registration. ``oplog``: it has operations. ``records`` and ``octets``:
reserved for writes so far. ``high``: the largest reserved lsn. ``active``: there until the
transaction is finished, for its index. ``fence``: lease and term of its begin, missing without one.
``fenced``: it was aborted because this term is over. Then ``reason`` is another one, which an agent
of the version before can read. ``once`` and ``outrun``: the same for the number of a key.
``owner``: who began it, missing without one. ``kept``: it is the newest committed one of its key,
so it is not forgotten. ``unclean``: such a one may have payloads. ``begin`` and ``commit``: marks
in the commit log.

After the decision to commit: ``n``, the number of records, and ``order``, for each lsn an index in
``logs`` as compressed numbers of 32 bits. When it is finished: ``marks`` of the COMMIT entries, and
``runs`` of the operations.
"""

import zlib
from array import array
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.lease import Fence
from oplogd.model.once import OnceNumber
from oplogd.model.transaction import FIRST_ID, Reason, State
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.topic_layout import Document
from oplogd.store.transactions import (
    Commit,
    CommittedLog,
    NewTransaction,
    OperationRun,
    Transaction,
)

TXNS = "oplog_txns"

# The index of unfinished transactions.
ACTIVE_INDEX = "active"

# Bits of an id below its time.
_RANDOM_BITS = 20

# Members of a finished commit. They may be large.
LARGE = {"order": 0, "marks": 0, "runs": 0}


class TxnPhase(StrEnum):
    """The state of a transaction as the row has it."""

    OPEN = "open"
    COMMITTING = "committing"
    # The transaction is to abort. Its entries may not be in all logs yet.
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"


STATES = {
    TxnPhase.OPEN: State.OPEN,
    TxnPhase.COMMITTING: State.COMMITTING,
    TxnPhase.ABORTING: State.ABORTED,
    TxnPhase.COMMITTED: State.COMMITTED,
    TxnPhase.ABORTED: State.ABORTED,
}
# The members of reasons for an abort that an agent of the version before cannot read.
MEMBERS = {Reason.FENCE: "fenced", Reason.ONCE: "outrun"}
UNFINISHED = (TxnPhase.COMMITTING, TxnPhase.ABORTING)


class TransactionRow(NamedTuple):
    """A row as it was read. ``topics``: the touched logs without the oplog.

    ``high``: no record with a larger lsn was written before.
    """

    transaction: Transaction
    phase: TxnPhase
    topics: tuple[int, ...]
    has_operations: bool
    high: int
    document: Document

    @property
    def order(self) -> "array[int]":
        """For each lsn of a commit an index in ``topics``, or OPLOG_INDEX."""
        order = array("I")
        order.frombytes(zlib.decompress(self.document["order"]))
        return order

    @property
    def commit(self) -> Commit:
        """The places of the records of a finished commit."""
        logs = [
            CommittedLog(each["log"], _mark(each.get("mark")), each["last"])
            for each in self.document["marks"]
        ]
        runs = [
            OperationRun(each["offset"], each["count"], each["ms"])
            for each in self.document["runs"]
        ]
        return Commit(self.transaction, tuple(logs), tuple(runs), self.order)


def id_at(ms: int, random: int = 0) -> int:
    """Return the id of a transaction begun at a time. ``random``: its last 20 bits."""
    return FIRST_ID + (ms << _RANDOM_BITS) + random


def new_row(id_: int, new: NewTransaction, now_ms: int) -> Document:
    document: Document = {
        "_id": id_,
        "log": new.log,
        "group": new.group,
        "phase": TxnPhase.OPEN,
        "begun": now_ms,
        "expires": now_ms + new.timeout_ms,
        "logs": [],
        "oplog": False,
        "records": 0,
        "octets": 0,
        "high": -1,
        "active": True,
    }
    if new.fence is not None:
        document["fence"] = new.fence._asdict()
    if new.once is not None:
        document["once"] = new.once._asdict()
    if new.owner is not None:
        document["owner"] = new.owner
    return document if new.only_log is None else {**document, "only": new.only_log}


def row_of(document: Document) -> TransactionRow:
    """Read a row. Raises StoreUnavailableError if the document is damaged."""
    try:
        return _row_of(document)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreUnavailableError(
            f"the row of transaction {document.get('_id')} is damaged: {error!r}"
        ) from None


def _row_of(document: Document) -> TransactionRow:
    phase = TxnPhase(document["phase"])
    topics = tuple(document["logs"])
    has_operations = bool(document["oplog"])
    reason, fence, once, owner = map(document.get, ("reason", "fence", "once", "owner"))
    unread = next((each for each, name in MEMBERS.items() if document.get(name)), None)
    transaction = Transaction(
        document["_id"],
        _number(document, "log"),
        document["group"],
        document.get("only"),
        STATES[phase],
        unread or (None if reason is None else Reason(reason)),
        _number(document, "begun"),
        _number(document, "expires"),
        (0, *topics) if has_operations else topics,
        _number(document, "n" if "n" in document else "records"),
        _number(document, "octets"),
        _mark(document.get("begin")),
        _mark(document.get("commit")),
        None if fence is None else Fence(str(fence["lease"]), _number(fence, "term")),
        None if once is None else OnceNumber(str(once["key"]), _number(once, "number")),
        None if owner is None else str(owner),
    )
    return TransactionRow(
        transaction, phase, topics, has_operations, _number(document, "high"), document
    )


def _number(document: Document, member: str) -> int:
    found = whole(document[member])
    if found is None:
        raise TypeError(f"{member} is no whole number")
    return found


def decided(records: "array[int]", now_ms: int) -> Document:
    """Return the members of a decision to commit. ``records``: see ``TransactionRow.order``."""
    order = zlib.compress(records.tobytes(), 1)
    return {
        "phase": TxnPhase.COMMITTING,
        "decided": now_ms,
        "n": len(records),
        "order": order,
    }


def finished(
    commit: Mark | None, logs: Sequence[CommittedLog], runs: Sequence[OperationRun]
) -> Document:
    """Return the members added by the end of a commit."""
    return {
        "phase": TxnPhase.COMMITTED,
        "commit": mark_document(commit),
        "marks": [
            {"log": each.log, "mark": mark_document(each.mark), "last": each.last} for each in logs
        ],
        "runs": [
            {"offset": each.first_offset, "count": each.length, "ms": each.ms} for each in runs
        ],
    }


def mark_document(mark: Mark | None) -> Document | None:
    return None if mark is None else {"offset": mark.offset, "ms": mark.ms, "q": mark.sequence}


def _mark(document: Document | None) -> Mark | None:
    return None if document is None else Mark(document["offset"], document["ms"], document["q"])
