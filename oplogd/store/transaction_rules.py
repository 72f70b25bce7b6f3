"""The rules of transactions in every store. No I/O."""

from collections.abc import Sequence

from oplogd.errors import OplogError, TopicError, TransactionConflictError, TransactionTooLargeError
from oplogd.model.lease import stale_transaction
from oplogd.model.transaction import Reason, Record, State
from oplogd.store.transactions import NewTransaction, RecordLimits, Transaction


def check_records(only_log: int | None, records: Sequence[Record], limits: RecordLimits) -> None:
    """Raise TopicError or TransactionTooLargeError if records may not be written."""
    if any(only_log not in (None, record.log) for record in records):
        raise TopicError("topic", "is not the topic of this transaction")
    if any(record.lsn >= limits.records for record in records):
        raise TransactionTooLargeError(f"a transaction may have {limits.records:,} records")


def check_whole(new: NewTransaction, records: Sequence[Record], limits: RecordLimits) -> None:
    """Raise an error, as ``check_records``, for a transaction whose bytes are known, too."""
    check_records(new.only_log, records, limits)
    if sum(len(record.content.data) for record in records) > limits.bytes:
        raise too_large(limits)


def too_large(limits: RecordLimits) -> TransactionTooLargeError:
    return TransactionTooLargeError(
        f"a transaction may have {limits.bytes:,} bytes (--txn-max-bytes)"
    )


def refusal(transaction: Transaction, records: int | None = None) -> OplogError:
    """Return the error for a request in the wrong state. ``records``: of a request to commit."""
    id_, reason, fence = transaction.id, transaction.reason, transaction.fence
    if reason is Reason.FENCE and fence is not None:
        return stale_transaction(id_, fence)
    if transaction.state in (State.COMMITTING, State.COMMITTED):
        if records is None:
            return TransactionConflictError(f"transaction {id_} has committed")
        return TransactionConflictError(
            f"transaction {id_} has committed with {transaction.records:,} records"
        )
    if reason in (Reason.CLIENT, Reason.ONCE):
        return TransactionConflictError(f"transaction {id_} was {reason}")
    return TransactionConflictError(f"transaction {id_} {reason or 'is still open'}")
