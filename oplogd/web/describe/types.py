"""Types of bodies and answers for the OpenAPI document.

They describe what hot endpoints decode in pieces, and answers that are encoded from dictionaries.
``topics`` and ``leases`` have the types of the other bodies, beside their decoders.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from oplogd.decode.typed import about
from oplogd.model.isolation import EntryKind
from oplogd.model.pointer import MAX_POINTER, Decision
from oplogd.model.transaction import Isolation, State
from oplogd.topics.codec.codec import MAX_KEYS

_POINTER = 1732701600000000000
_TXN = "6494239639384848945"
_POSITION = "000001937f4d2a1b000000000000000000000000"
_STAMP = "000001936d10397b0000"
_BEGUN, _EXPIRES = "2024-11-27T10:00:00.123Z", "2024-11-27T10:15:00.123Z"

Pointer = Annotated[
    int | str,
    about(
        f"The write pointer of a foreign transaction: 0 to {MAX_POINTER}, also as a string.",
        str(_POINTER),
    ),
]
PointerId = Annotated[str, about(None, str(_POINTER))]
Long = Annotated[int | str, Meta(description="A whole number of 64 bits.")]
TopicPath = Annotated[str, about("NAMESPACE/TOPIC.", "shop/orders")]
Begun = Annotated[str, about(None, _BEGUN)]
Expires = Annotated[str, about(None, _EXPIRES)]
Count = Annotated[int, Meta(ge=0)]


class ProblemAnswer(Struct):
    """An error (RFC 9457)."""

    type: Annotated[str, about(None, "about:blank")]
    title: Annotated[str, about(None, "Bad Request")]
    status: Annotated[int, about(None, 400)]
    detail: Annotated[str, about("A sentence for people.", "event: must be insert or delete")]
    errors: Annotated[
        list[dict[str, Any]], about("Invalid lines or messages: line, field and reason.")
    ] = []


class OperationBody(Struct):
    """An operation."""

    event: Annotated[
        Literal["insert", "update", "delete"], about("In upper or lower case.", "insert")
    ]
    type: Annotated[str, about("At most 255 bytes, no '/' or ','; stored in lower case.", "video")]
    id: Annotated[str, about("At most 1,024 bytes.", "xekw")]
    parents: Annotated[list[str] | None, about(None, ["user/x3kd2"])] = None
    timestamp: Annotated[
        str | None,
        about("When the object changed. Default: the time of arrival.", "2014-11-06T11:04:39.041Z"),
    ] = None


class IngestedAnswer(Struct):
    """The batch is stored."""

    ingested: Annotated[int, about(None, 2)]


class StatusAnswer(Struct):
    """Counters and states; more members are in the reference."""

    status: Annotated[Literal["OK", "DEGRADED"], about(None, "OK")]


class SessionAnswer(Struct):
    """The state of the session."""

    password_needed: Annotated[bool, about(None, True)]
    signed_in: Annotated[bool, about(None, False)]
    expires: Annotated[str | None, about(None, None)]


class TokenAnswer(Struct):
    """The token."""

    token: Annotated[str, about(None, "1763632800.…")]
    expires: Annotated[str, about(None, "2025-11-20T10:00:00.000Z")]
    seconds: Annotated[int, about(None, 900)]


class TopicAnswer(Struct):
    """A topic. Its properties are strings."""

    name: Annotated[str, about(None, "orders")]
    properties: Annotated[dict[str, str], about(None, {"ttl": "604800"})]


class NamespaceAnswer(Struct):
    """A namespace."""

    name: Annotated[str, about(None, "shop")]
    topics: Annotated[int, about("Number of its topics.", 2)]


class MessageBody(Struct, forbid_unknown_fields=True):
    """A message."""

    payload: str | None
    key: Annotated[str | None, Meta(description="At most 1,024 bytes.")] = None
    headers: list[tuple[str, str]] | None = None
    ttl: Annotated[int | str | None, Meta(description="Time to live in seconds.")] = None
    encoding: Annotated[
        Literal["base64"] | None,
        Meta(description="base64: the payload is base64 of any bytes."),
    ] = None


class PublishBody(Struct, forbid_unknown_fields=True):
    """The body of a publish."""

    messages: Annotated[
        list[str | MessageBody],
        about(None, ["one", {"payload": "two", "key": "k", "headers": [["name", "value"]]}]),
    ] = []
    transactionWritePointer: Annotated[int | str | None, about(None)] = None


class StoreBody(Struct, forbid_unknown_fields=True):
    """The body of a store."""

    transactionWritePointer: Pointer
    messages: Annotated[list[str | MessageBody], about(None, ["one"], min_length=1)]


class MessageInfo(Struct, forbid_unknown_fields=True):
    """Time and sequence of a message."""

    publishTimestamp: Annotated[int, about(None, 1732701600123, ge=0)]
    sequenceId: Annotated[int, about(None, 0, ge=0, le=65_535)]


class PublishedAnswer(Struct):
    """The body of a rollback. Without ``transactionWritePointer`` the answer is empty."""

    transactionWritePointer: Annotated[int, about(None, _POINTER)]
    messages: list[MessageInfo]


class RollbackBody(Struct, forbid_unknown_fields=True):
    """The body of a rollback: the answer to a publish, or its keys."""

    transactionWritePointer: Pointer
    messages: Annotated[list[MessageInfo], Meta(max_length=MAX_KEYS)] | None = None
    rollbackKeys: Annotated[
        list[Annotated[str, Meta(pattern="^[0-9a-f]{20}$")]] | None,
        about("Time and sequence of messages in hexadecimal digits.", [_STAMP]),
    ] = None


class SnapshotBody(Struct, forbid_unknown_fields=True):
    """The snapshot of a foreign transaction. It has no effect on ``system/oplog``."""

    readPointer: Long
    writePointer: Long | None = None
    inProgress: list[Long] | None = None
    invalid: list[Long] | None = None


class PollBody(Struct, forbid_unknown_fields=True):
    """The body of a poll."""

    startFrom: Annotated[
        str | int | None,
        about("An id, a time in milliseconds since 1970, or null for the oldest message.", None),
    ] = None
    inclusive: Annotated[
        bool, about("false: after the id, or after all messages of that time.", True)
    ] = True
    limit: Annotated[int | None, about(None, 100)] = None
    transaction: SnapshotBody | None = None
    isolation: Annotated[
        Isolation | None, Meta(description="Wins over the query parameter of this name.")
    ] = None


class PolledAnswer(Struct):
    """A message, with key, headers and encoding if it has them."""

    id: Annotated[str, about(None, "0000018bcfe56800000000000000000000000000")]
    payload: Annotated[str | None, about(None, "one")]


class DecidedAnswer(Struct):
    """The pointer is decided in these topics."""

    pointer: PointerId
    state: Annotated[Decision, about(None, "committed")]
    topics: Annotated[list[str], about(None, ["shop/orders"])]


class PointerAnswer(Struct):
    """An open pointer. ``published``: otherwise its messages are only stored."""

    pointer: PointerId
    begun_at: Begun
    expires_at: Expires
    published: Annotated[bool, about(None, True)]


class TopicPointerAnswer(PointerAnswer):
    """A pointer that is open in a topic. ``holds``: readers of committed messages wait for it."""

    namespace: Annotated[str, about(None, "shop")]
    topic: Annotated[str, about(None, "orders")]
    state: Annotated[str, about(None, "open")]
    holds: Annotated[bool, about(None, True)]


class EntryAnswer(Struct):
    """An entry of a topic, without its message."""

    offset: Annotated[int, about(None, 7)]
    id: Annotated[str, about(None, _STAMP)]
    time: Begun
    kind: Annotated[EntryKind, about(None, "direct")]
    pointer: Annotated[str, about(None, str(_POINTER))]
    state: Annotated[str, about(None, "open")]
    bytes: Annotated[int, about(None, 17)]


class RecordBody(Struct, forbid_unknown_fields=True):
    """A record. In ``system/oplog`` its payload is an operation, or the JSON text of one."""

    topic: TopicPath
    lsn: Annotated[Count, Meta(description="0, 1, 2, in all topics of a transaction together.")]
    payload: str | OperationBody | None
    key: str | None = None
    headers: list[tuple[str, str]] | None = None
    ttl: int | str | None = None
    encoding: Literal["base64"] | None = None


_ORDER = {"event": "insert", "type": "order", "id": "1"}


class RecordsBody(Struct, forbid_unknown_fields=True):
    """The records of one request."""

    records: Annotated[
        list[RecordBody],
        about(
            None,
            [
                {"topic": "shop/orders", "lsn": 0, "payload": "one", "key": "k"},
                {"topic": "system/oplog", "lsn": 1, "payload": _ORDER},
            ],
            min_length=1,
        ),
    ]


class BegunAnswer(Struct):
    """The new transaction."""

    txn: Annotated[str, about(None, _TXN)]
    expires_at: Expires


class TransactionAnswer(Struct):
    """A transaction. Members of one with a reason, a topic, a lease or a commit are more."""

    txn: Annotated[str, about(None, _TXN)]
    state: Annotated[State, about(None, "open")]
    group: Annotated[str, about(None, "default")]
    begun_at: Begun
    expires_at: Expires
    records: Annotated[int, about(None, 2)]
    bytes: Annotated[int, about(None, 161)]
    topics: Annotated[list[str], about(None, ["shop/orders", "system/oplog"])]
    begin: Annotated[str, about("Position in the commit log.", _POSITION)]


class CommittedAnswer(Struct):
    """Positions in the commit log, and ids of the records; null: its topic was deleted."""

    begin: Annotated[str | None, about(None, _POSITION)]
    commit: Annotated[str | None, about(None, _POSITION)]
    records: Annotated[list[str | None], about(None, [_POSITION])]
