"""The bodies of records, commit and abort, and names in requests. No I/O."""

from collections.abc import Callable, Collection
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import Annotated, NamedTuple

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.pieces import Pieces
from oplogd.decode.typed import Members, Rules, Value, about, read, values_of
from oplogd.errors import (
    MessageError,
    OperationError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model.message import NO_HEADERS, REASONS, Message, Ttl, message_of, require_size
from oplogd.model.names import MAX_NAME, OPLOG, TopicName, is_name
from oplogd.model.operation import MAX_OPERATION_TEXT, OnUnknown, Operation, decode
from oplogd.model.transaction import (
    GROUP_PREFIX,
    State,
    is_group_log,
)
from oplogd.topics.codec.codec import Most, checking

MAX_GROUP = MAX_NAME - len(GROUP_PREFIX)
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

# Most characters of NAMESPACE/TOPIC.
__MAX_TOPIC = 2 * MAX_NAME + 1
_DIGEST_BYTES = 16
# Stands for the time of arrival while an operation is decoded. No timestamp is equal to it, because
# there is no year 0, and it has the same length as every timestamp.
_NO_TIME = "0000-00-00T00:00:00.000Z"
_TIME_AT = len(b'{"timestamp":"')
# Records handled in one piece.
_PIECE = 1000
# A longer body of a request with records is not taken for an empty one.
_MAX_BLANK = 1000


class GivenRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as it was sent. See ``Record``.

    The garbage collector does not visit these: 100,000 tuples delay other requests by 50 ms.
    """

    lsn: int
    topic: TopicName
    content: Message | Operation
    digest: str


class Writing(NamedTuple):
    """The records of one request, each lsn once, the names of their topics, and their bytes."""

    records: Collection[GivenRecord]
    topics: Collection[TopicName]
    bytes: int


class CommitBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a commit."""

    records: Annotated[int, about("Number of the records that were written.", 2, ge=0)]


class AbortBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an abort: it has no members."""


class _Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    topic: str | None = None
    lsn: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"")
    key: str | None = None
    headers: msgspec.Raw = NO_HEADERS
    ttl: Ttl = None
    encoding: str | None = None


GROUP_RULE = f"must be 1 to {MAX_GROUP} ASCII letters, digits, '.', '_' or '-', and not '.' or '..'"
TOPIC_RULE = (
    f"must be NAMESPACE/TOPIC, each 1 to {MAX_NAME} ASCII letters, digits, '.', '_' or '-',"
    " and not '.' or '..'"
)
OTHER_TOPIC = "this transaction was begun with another topic"
_COUNT = "must be a whole number, at least 0"

_COMMIT_RULES = Rules({"records": _COUNT}, required=("records",))
_RECORD_RULES = Rules({**REASONS, "topic": TOPIC_RULE, "lsn": _COUNT})
TOPIC_RULES = Rules(whole=TOPIC_RULE)
_PAYLOAD_RULES = Rules(whole=REASONS["payload"])

_RECORDS = Members("records")
_decode_commit: Callable[[Text], CommitBody] = msgspec.json.Decoder(CommitBody).decode
_decode_abort: Callable[[Text], AbortBody] = msgspec.json.Decoder(AbortBody).decode
_decode_record: Callable[[Text], _Record] = msgspec.json.Decoder(_Record).decode
_decode_payload: Callable[[Text], str | None] = msgspec.json.Decoder(str | None).decode
_decode_text: Callable[[Text], str] = msgspec.json.Decoder(str).decode


def parse_commit(raw: Buffer) -> int:
    """Return the number of records in the body of a commit. Raises MessageError."""
    return read(_decode_commit, raw.strip() or b"{}", "body", _COMMIT_RULES).records


def parse_abort(raw: Buffer) -> None:
    """Check the body of an abort, which has no members. Raises MessageError."""
    read(_decode_abort, raw.strip() or b"{}", "body")


def parse_state(given: str | None) -> State | None:
    """Raise MessageError unless this is a state or None."""
    if given is None:
        return None
    try:
        return State(given)
    except ValueError:
        raise MessageError("state", f"must be {', '.join(State)}") from None


def parse_limit(given: str | None) -> int:
    """Return the length of a list. Raises MessageError."""
    if given is None:
        return DEFAULT_LIMIT
    if given.isascii() and given.isdecimal() and len(given) <= 4 and 1 <= int(given) <= MAX_LIMIT:
        return int(given)
    raise MessageError("limit", f"must be a whole number from 1 to {MAX_LIMIT:,}")


def group_name(given: str) -> str:
    """Return the name of a group. Raises MessageError."""
    if len(given) > MAX_GROUP or not is_name(given):
        raise MessageError("group", GROUP_RULE)
    return given


def topic_name(given: str | None) -> TopicName:
    """Return a topic for records. Raises MessageError."""
    if given is None:
        raise MessageError("topic", "is required")
    if (name := _topic_name(given)) is None:
        raise MessageError("topic", TOPIC_RULE)
    if is_group_log(name):
        raise MessageError(
            "topic", f"{name} is the commit log of a group; only the agent writes it"
        )
    return name


def _topic_name(text: str) -> TopicName | None:
    # The length is checked before the cache, which would keep a long text.
    return _short_topic_name(text) if len(text) <= __MAX_TOPIC else None


@lru_cache(1000)
def _short_topic_name(text: str) -> TopicName | None:
    namespace, _, topic = text.partition("/")
    return TopicName(namespace, topic) if is_name(namespace) and is_name(topic) else None


def parsing_records(
    raw: Buffer, arrival: str, most: int, on_unknown: OnUnknown = None
) -> Pieces[Writing]:
    """Return the records of a body, each lsn once.

    ``arrival`` (see ``format_ms``): the time of operations without a timestamp. ``most``: the
    records that a transaction may have. ``on_unknown``: see ``decode``. Raises
    InvalidMessagesError, MessageError, TransactionConflictError for an lsn with two contents, and
    TransactionTooLargeError.
    """
    found_members = yield from _RECORDS.reading(
        raw if len(raw) > _MAX_BLANK or raw.strip() else b"{}", most, lambda _: too_many(most)
    )
    return (yield from checking_records(found_members.get("records"), arrival, most, on_unknown))


def checking_records(
    given: Value | None,
    arrival: str,
    most: int,
    on_unknown: OnUnknown = None,
    *,
    are_numbered: bool = False,
    is_brief: bool = False,
) -> Pieces[Writing]:
    """Return the records of a list: see ``parsing_records``.

    ``are_numbered``: a record without an lsn gets its place in the list. ``is_brief``: see
    ``checking``.
    """
    values = None if given is None else values_of(given)
    if values is None:
        raise MessageError("records", "must be a list with at least one record")
    places = count()
    records = yield from checking(
        values,
        lambda each: _record(each, arrival, on_unknown, next(places) if are_numbered else None),
        "records",
        Most(most, lambda: too_many(most)),
        is_brief=is_brief,
    )
    found: dict[int, GivenRecord] = {}
    topics: set[TopicName] = set()
    size = 0
    for index, record in enumerate(records):
        if record.lsn >= most:
            raise too_many(most)
        if found.setdefault(record.lsn, record).digest != record.digest:
            raise TransactionConflictError(f"lsn {record.lsn} is given twice, with other content")
        topics.add(record.topic)
        size += len(record.content.data)
        if index % _PIECE == 0:
            yield
    return Writing(found.values(), topics, size)


def too_many(most: int) -> TransactionTooLargeError:
    return TransactionTooLargeError(
        f"a transaction may have {most:,} records (--txn-max-records), with lsn 0 to {most - 1:,}"
    )


def _record(given: Text, arrival: str, on_unknown: OnUnknown, number: int | None) -> GivenRecord:
    """``number``: the lsn of a record without one, None if it needs one."""
    require_size(given, "record")
    record = read(_decode_record, given, "record", _RECORD_RULES)
    topic = topic_name(record.topic)
    lsn = number if record.lsn is None else record.lsn
    if lsn is None:
        raise MessageError("lsn", "is required")
    if lsn < 0:
        raise MessageError("lsn", _COUNT)
    if not record.payload:
        raise MessageError("payload", "is required")
    if topic == OPLOG:
        return GivenRecord(lsn, topic, *_operation(record, arrival, on_unknown))
    payload = read(_decode_payload, record.payload, "payload", _PAYLOAD_RULES)
    message = message_of(payload, record.key, record.headers, record.ttl, record.encoding)
    return GivenRecord(lsn, topic, message, _digest(topic, str(message.ttl), message.data))


def _operation(record: _Record, arrival: str, on_unknown: OnUnknown) -> tuple[Operation, str]:
    for name in ("key", "headers", "ttl", "encoding"):
        if getattr(record, name) not in (None, NO_HEADERS):
            raise MessageError(name, f"is no member of a record of {OPLOG}")
    text: Text = record.payload
    if len(text) <= MAX_OPERATION_TEXT and bytes(text).startswith(b'"'):
        text = read(_decode_text, text, "payload").encode()
    try:
        operation = decode(text, _NO_TIME, on_unknown)
    except OperationError as error:
        field = "payload" if error.field == "operation" else f"payload.{error.field}"
        raise MessageError(field, error.reason) from None
    # A repeated record arrives later, so its digest must not contain the time of arrival.
    digest = _digest(OPLOG, operation.event, operation.data)
    end = _TIME_AT + len(_NO_TIME)
    if operation.data[_TIME_AT:end] == _NO_TIME.encode():
        data = operation.data[:_TIME_AT] + arrival.encode() + operation.data[end:]
        operation = operation._replace(data=data)
    return operation, digest


def _digest(topic: TopicName, text: str, data: bytes) -> str:
    return blake2b(f"{topic}\0{text}\0".encode() + data, digest_size=_DIGEST_BYTES).hexdigest()
