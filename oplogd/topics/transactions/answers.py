"""A transaction and its commit as clients see them. No I/O."""

from collections.abc import Mapping
from typing import Any

from oplogd.decode.pieces import Pieces
from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId
from oplogd.model.operation import format_ms
from oplogd.store.transactions import Commit, Transaction

# Ids of records handled in one piece.
_PIECE = 1000


def shown(transaction: Transaction, topics: Mapping[int, str]) -> dict[str, Any]:
    """Return the members of a transaction for an answer. ``topics``: known names by log."""
    group, only, reason = transaction.group, transaction.only_log, transaction.reason
    return {
        "txn": str(transaction.id),
        "state": transaction.state.value,
        **({"reason": reason.value} if reason else {}),
        **({"group": group} if group is not None else {}),
        **({"topic": topics[only]} if only is not None and only in topics else {}),
        **({"lease": str(transaction.fence)} if transaction.fence else {}),
        **({"once": transaction.once._asdict()} if transaction.once else {}),
        "owner": transaction.owner,
        "begun_at": format_ms(transaction.begun_ms),
        "expires_at": format_ms(transaction.expires_ms),
        "records": transaction.records,
        "bytes": transaction.bytes,
        "topics": sorted(topics[log] for log in transaction.logs if log in topics),
        **({"begin": position(transaction.begin)} if transaction.begin else {}),
        **({"commit": position(transaction.commit)} if transaction.commit else {}),
    }


def encoding_commit(commit: Commit, *, is_named: bool = False) -> Pieces[bytes]:
    """Return the body of the answer to a commit.

    ``is_named``: with the id of the transaction, as with a number of a key.
    """
    ids: list[str] = []
    parts: list[str] = []
    for id_ in commit.record_ids():
        ids.append("null" if id_ is None else f'"{id_}"')
        if len(ids) == _PIECE:
            parts.append(",".join(ids))
            ids.clear()
            yield
    if ids:
        parts.append(",".join(ids))
    transaction = commit.transaction
    ends = {"begin": transaction.begin, "commit": transaction.commit}
    members = [f'"txn":"{transaction.id}"'] if is_named or transaction.once else []
    members += [f'"{name}":{_quoted(mark)}' for name, mark in ends.items()]
    yield
    return f'{{{",".join(members)},"records":[{",".join(parts)}]}}'.encode()


def position(mark: Mark) -> str:
    """Return a position in a commit log: the id of a message."""
    return str(MessageId(mark.ms, mark.sequence))


def _quoted(mark: Mark | None) -> str:
    return "null" if mark is None else f'"{position(mark)}"'
