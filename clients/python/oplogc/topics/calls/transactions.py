"""Requests about transactions, and the meaning of their answers. No I/O."""

import json
import re
from datetime import datetime
from typing import Any, NamedTuple

from oplogc.http.answers import Answer
from oplogc.topics.calls.call import Call, limit, list_reader, members_of, query, reader, text
from oplogc.topics.calls.topics import refusal as refusal_of_topics
from oplogc.topics.messages.names import TopicName, topic_name
from oplogc.wire.errors import (
    AlreadyCommittedError,
    BadRequestError,
    OplogError,
    RefusedError,
)

PATH = "/v1/txns"
MAX_TIMEOUT_SECONDS = 900
DEFAULT_GROUP = "default"
STATES = ("open", "committing", "committed", "aborted")
MAX_TERM = 10**18 - 1
MAX_NUMBER = (1 << 53) - 1
_KIND = "transactions"
_ID = re.compile(r"[0-9]{1,19}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_RECORD = re.compile(r"records\[([0-9]{1,9})\]")


class Committed(NamedTuple):
    """A committed transaction.

    ``begin``, ``commit``: positions in the commit log. ``records``: ids by lsn. None: the record's
    topic was deleted. ``txn``: the id of a whole transaction, otherwise empty.
    """

    begin: str
    commit: str
    records: tuple[str | None, ...]
    txn: str = ""


class TransactionStatus(NamedTuple):
    """A transaction as the agent describes it.

    ``group``: None if the transaction was begun with ``topic``. ``lease``: as it was begun.
    ``owner``: who began it, None if access was open or an older agent began it. ``records``,
    ``bytes``: written so far. ``topics``: the topics written to. ``begin``, ``commit``: positions
    in the commit log.
    """

    id: str
    state: str
    begun_at: datetime
    expires_at: datetime
    records: int
    bytes: int
    topics: tuple[str, ...]
    reason: str | None = None
    group: str | None = None
    topic: str | None = None
    begin: str | None = None
    commit: str | None = None
    lease: str | None = None
    owner: str | None = None


def group_log(group: str) -> TopicName:
    """Return the topic of a group's commit log. Raise ValueError."""
    if group == "":
        raise ValueError("group: must not be empty")
    if not isinstance(group, str):
        raise ValueError(f"{group!r} is not a group: give text")
    try:
        return topic_name(f"system/_txn.{group}")
    except ValueError:
        raise ValueError(
            f"{group!r} is not a group: give 1 to 244 ASCII letters, digits, '.', '_' or '-'"
        ) from None


def begin(
    group: str | None,
    topic: str | None,
    timeout: float,
    lease: tuple[str, int] | None = None,
    once: tuple[str, int] | None = None,
) -> Call[tuple[str, datetime]]:
    """Ask for the id of a new transaction, and the time at which it expires.

    ``timeout``: seconds. ``lease``: name and term. ``once``: key and number. Raises ValueError.
    """
    if group is not None and topic is not None:
        raise ValueError("give group or topic, not both")
    if type(timeout) not in (int, float) or not 0.001 <= timeout <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"timeout: give seconds, 0.001 to {MAX_TIMEOUT_SECONDS}")
    asked: dict[str, object] = {"timeout_ms": int(timeout * 1000)}
    if group is not None:
        group_log(group)
        asked["group"] = group
    if topic is not None:
        asked["topic"] = str(topic_name(topic))
    if once is not None:
        asked["once"] = _once(*once)
    headers = {} if lease is None else {"Oplog-Lease": _fence(*lease)}
    return Call("POST", PATH, _BEGUN, json.dumps(asked).encode(), True, 201, headers=headers)


def commit_whole(begin: Call[Any], records: list[bytes]) -> Call[Committed]:
    """Return the call that commits records at once. They are encoded. ``begin``: its other members.

    Raises ValueError without a record.
    """
    if not records:
        raise ValueError("records: give at least one")

    def convert(given: Any) -> Committed:
        return _committed(given)._replace(txn=transaction_id(given["txn"]))

    assert begin.body is not None
    body = b'%s,"records":[%s]}' % (begin.body[:-1], b",".join(records))
    return Call("POST", PATH, reader(_KIND, convert), body, True, headers=begin.headers)


def write(txn: str, records: list[bytes]) -> Call[None]:
    """``records`` are encoded. The reader raises ProtocolError unless this transaction is shown."""

    def check(given: Any) -> None:
        if given["txn"] != txn:
            raise ValueError("it shows another transaction")

    body = b'{"records":[' + b",".join(records) + b"]}"
    return Call("POST", f"{_path(txn)}/records", reader(_KIND, check), body, True)


def commit(txn: str, records: int) -> Call[Committed]:
    """The reader raises ProtocolError unless there are so many ids.

    It raises AlreadyCommittedError for the commit of another transaction.
    """

    def convert(given: Any) -> Committed:
        if given.get("txn", txn) != txn:
            raise AlreadyCommittedError(transaction_id(given["txn"]))
        committed = _committed(given)
        if len(committed.records) != records:
            raise ValueError(f"it does not show {records:,} records")
        return committed

    body = b'{"records":%d}' % records
    return Call("POST", f"{_path(txn)}/commit", reader(_KIND, convert), body, True)


def abort(txn: str) -> Call[TransactionStatus]:
    return Call("POST", f"{_path(txn)}/abort", reader(_KIND, _status), b"{}", True)


def get(txn: str) -> Call[TransactionStatus]:
    return Call("GET", _path(txn), reader(_KIND, _status))


def list_transactions(
    state: str | None, group: str | None, most: int | None
) -> Call[tuple[TransactionStatus, ...]]:
    """Raises ValueError."""
    if state is not None and state not in STATES:
        raise ValueError(f"state: give {', '.join(STATES[:-1])} or {STATES[-1]}")
    asked = query(state=state, group=group, limit=limit(most))
    if group is not None:
        group_log(group)
    return Call("GET", PATH, list_reader(_KIND, _status), query=asked)


def refusal(call: Call[Any], answer: Answer, first: int = 0) -> OplogError | None:
    """Return the error for a final refusal. None for success.

    ``first``: lsn of the first record in the request. The error names records by their lsn.
    """
    if answer.status == 404 and call.path.startswith(f"{PATH}/"):  # the topic or the transaction
        return RefusedError(answer.status, answer.detail())
    if answer.status == 200 and call.done == 201:
        return AlreadyCommittedError(call.read(answer)[0])
    error = refusal_of_topics(call, answer)
    if isinstance(error, BadRequestError) and first:
        detail = _RECORD.sub(lambda found: f"records[{first + int(found[1])}]", error.detail)
        return BadRequestError(error.status, detail)
    return error


def transaction_id(given: str) -> str:
    """Return the id of a transaction. Raise ValueError."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        raise ValueError(f"{given!r} is not the id of a transaction: give its digits")
    return given


def _committed(given: Any) -> Committed:
    ids = given["records"]
    if not isinstance(ids, list):
        raise ValueError("it shows no records")
    found = tuple(None if id_ is None else text(id_) for id_ in ids)
    return Committed(text(given["begin"]), text(given["commit"]), found)


def _fence(name: str, term: int) -> str:
    """Return the header with a lease. Raise ValueError."""
    _check_name(name, "lease")
    if type(term) is not int or not 1 <= term <= MAX_TERM:
        raise ValueError(f"{term!r} is not a term: give a whole number of at least 1")
    return f"{name}; term={term}"


def _once(key: str, number: int) -> dict[str, object]:
    """Return the member of a begin. Raise ValueError."""
    _check_name(key, "key")
    if type(number) is not int or not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"{number!r} is not a number: give a whole one, 0 to {MAX_NUMBER}")
    return {"key": key, "number": number}


def _check_name(name: str, kind: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(
            f"{name!r} is not a {kind}: give 1 to 249 ASCII letters, digits, '.', '_' or '-', "
            "and not '.' or '..'"
        )


def _path(txn: str) -> str:
    return f"{PATH}/{transaction_id(txn)}"


def _status(given: Any) -> TransactionStatus:
    return members_of(TransactionStatus)({**given, "id": given["txn"]})


_BEGUN = reader(
    _KIND,
    lambda given: (transaction_id(given["txn"]), datetime.fromisoformat(given["expires_at"])),
)
