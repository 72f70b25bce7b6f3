"""Types of bodies and answers for the OpenAPI document.

They describe what hot endpoints decode in pieces, and answers that are encoded from dictionaries.
``topics`` and ``leases`` have the types of the other bodies, beside their decoders.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from oplogd.decode.typed import about, example
from oplogd.model.isolation import EntryKind
from oplogd.model.pointer import MAX_POINTER, Decision
from oplogd.model.transaction import Isolation, State
from oplogd.topics.codec.codec import MAX_KEYS
from oplogd.topics.transactions.begin import BeginBody

_RIGHT = {"read": ["system/oplog"], "parents": ["user/ada"]}
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
PointerId = Annotated[str, example(str(_POINTER))]
Long = Annotated[int | str, about("A whole number of 64 bits.")]
TopicPath = Annotated[str, about("NAMESPACE/TOPIC.", "shop/orders")]
Begun = Annotated[str, example(_BEGUN)]
Expires = Annotated[str, example(_EXPIRES)]


class ProblemAnswer(Struct, omit_defaults=True):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: Annotated[str, about("A sentence for people.")]
    errors: Annotated[
        list[Mapping[str, Any]], about("Invalid lines or messages: line, field and reason.")
    ] = []


class OperationBody(Struct):
    event: Annotated[
        Literal["insert", "update", "delete"], about("In upper or lower case.", "insert")
    ]
    type: Annotated[str, about("At most 255 bytes, no '/' or ','; stored in lower case.", "video")]
    id: Annotated[str, about("At most 1,024 bytes.", "xekw")]
    parents: Annotated[list[str] | None, example(["user/x3kd2"])] = None
    timestamp: Annotated[str | None, about("RFC 3339. Default: now.", _BEGUN)] = None


class IngestedAnswer(Struct):
    ingested: Annotated[int, example(2)]


class ObjectAnswer(Struct):
    type: Annotated[str, example("video")]
    id: Annotated[str, example("xekw")]
    parents: Annotated[list[str], example(["user/x3kd2"])]
    timestamp: Annotated[str, example(_BEGUN)]
    deleted: Annotated[bool, example(False)]
    position: Annotated[
        str,
        about("Follow from here: the id of the last operation.", "545b55c7002900000000002a"),
    ]
    ref: Annotated[str, about("Only with --object-url.")] = ""


class StatusAnswer(Struct):
    """Counters and states. The reference lists the other members."""

    status: Annotated[Literal["OK", "DEGRADED"], example("OK")]


class SessionAnswer(Struct):
    password_needed: Annotated[bool, example(True)]
    principals: Annotated[bool, about("Whether there are clients with names.", False)]
    signed_in: Annotated[bool, example(False)]
    reads_operations: Annotated[bool, about("Whether the caller may read operations.", False)]
    expires: Annotated[str | None, example(None)]


class TokenAnswer(Struct):
    token: Annotated[str, example("1763632800.…")]
    expires: Annotated[str, example("2025-11-20T10:00:00.000Z")]
    seconds: Annotated[int, example(900)]
    right: Annotated[
        dict[str, list[str]] | None,
        about("The right that is granted. Missing if none was asked for.", _RIGHT),
    ] = None


class TopicAnswer(Struct):
    """A topic. Its properties are strings."""

    name: Annotated[str, example("orders")]
    properties: Annotated[dict[str, str], example({"ttl": "604800"})]


class NamespaceAnswer(Struct):
    name: Annotated[str, example("shop")]
    topics: Annotated[int, about("Number of its topics.", 2)]


class MessageBody(Struct, forbid_unknown_fields=True):
    payload: str | None
    key: Annotated[str | None, about("At most 1,024 bytes.")] = None
    headers: list[tuple[str, str]] | None = None
    ttl: Annotated[int | str | None, about("Time to live in seconds.")] = None
    encoding: Annotated[Literal["base64"] | None, about("Encoding of the payload.")] = None


class PublishBody(Struct, forbid_unknown_fields=True):
    messages: Annotated[
        list[str | MessageBody],
        example(["one", {"payload": "two", "key": "k", "headers": [["name", "value"]]}]),
    ] = []
    transactionWritePointer: int | str | None = None


class StoreBody(Struct, forbid_unknown_fields=True):
    transactionWritePointer: Pointer
    messages: Annotated[list[str | MessageBody], example(["one"], min_length=1)]


class MessageInfo(Struct, forbid_unknown_fields=True):
    publishTimestamp: Annotated[int, example(1732701600123, ge=0)]
    sequenceId: Annotated[int, example(0, ge=0, le=65_535)]


class PublishedAnswer(Struct):
    """The body of a rollback. Without ``transactionWritePointer`` the answer is empty."""

    transactionWritePointer: Annotated[int, example(_POINTER)]
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
    startFrom: Annotated[
        str | int | None,
        about("An id, a time in milliseconds since 1970, or null for the oldest message.", None),
    ] = None
    inclusive: Annotated[
        bool, about("false: after the id, or after all messages of that time.", True)
    ] = True
    limit: Annotated[int | None, example(100)] = None
    transaction: SnapshotBody | None = None
    isolation: Annotated[Isolation | None, about("Wins over the query parameter.")] = None


class PolledAnswer(Struct):
    """A message, with key, headers and encoding if it has them."""

    id: Annotated[str, example("0000018bcfe56800000000000000000000000000")]
    payload: Annotated[str | None, example("one")]


class DecidedAnswer(Struct):
    pointer: PointerId
    state: Annotated[Decision, example("committed")]
    topics: Annotated[list[str], example(["shop/orders"])]


class PointerAnswer(Struct):
    """An open pointer. ``published``: otherwise its messages are only stored."""

    pointer: PointerId
    begun_at: Begun
    expires_at: Expires
    published: Annotated[bool, example(True)]


class TopicPointerAnswer(PointerAnswer):
    """A pointer that is open in a topic. ``holds``: readers of committed messages wait for it."""

    namespace: Annotated[str, example("shop")]
    topic: Annotated[str, example("orders")]
    state: Annotated[str, example("open")]
    holds: Annotated[bool, example(True)]


class EntryAnswer(Struct):
    """An entry of a topic, without its message."""

    offset: Annotated[int, example(7)]
    id: Annotated[str, example(_STAMP)]
    time: Begun
    kind: Annotated[EntryKind, example("direct")]
    pointer: Annotated[str, example(str(_POINTER))]
    state: Annotated[str, example("open")]
    bytes: Annotated[int, example(17)]


class _Content(Struct, forbid_unknown_fields=True):
    topic: TopicPath
    payload: str | OperationBody | None
    key: str | None = None
    headers: list[tuple[str, str]] | None = None
    ttl: int | str | None = None
    encoding: Literal["base64"] | None = None


class RecordBody(_Content, forbid_unknown_fields=True, kw_only=True):
    """A record. In ``system/oplog`` its payload is an operation, or the JSON text of one."""

    lsn: Annotated[int, about("0, 1, 2, in all topics of a transaction together.", ge=0)]


_ORDER = {"event": "insert", "type": "order", "id": "1"}
_RECORDS = [
    {"topic": "shop/orders", "lsn": 0, "payload": "one", "key": "k"},
    {"topic": "system/oplog", "lsn": 1, "payload": _ORDER},
]


class RecordsBody(Struct, forbid_unknown_fields=True):
    records: Annotated[list[RecordBody], example(_RECORDS, min_length=1)]


class WholeRecordBody(_Content, forbid_unknown_fields=True, kw_only=True):
    """A record of a whole transaction."""

    lsn: Annotated[
        Annotated[int, Meta(ge=0)] | None, about("Default: the place in the list, from 0.")
    ] = None


class WholeBody(BeginBody, forbid_unknown_fields=True):
    """The body of a begin, or a whole transaction."""

    records: Annotated[
        list[WholeRecordBody] | None,
        about("All records of the transaction, which then commits at once."),
    ] = None


class BegunAnswer(Struct):
    txn: Annotated[str, example(_TXN)]
    expires_at: Expires


class TransactionAnswer(Struct):
    """A transaction. Members of one with a reason, a topic, a lease or a commit are more."""

    txn: Annotated[str, example(_TXN)]
    state: Annotated[State, example("open")]
    group: Annotated[str, example("default")]
    owner: Annotated[
        str | None, about("Who began it. null: for example, access was open.", "sub:ada")
    ]
    begun_at: Begun
    expires_at: Expires
    records: Annotated[int, example(2)]
    bytes: Annotated[int, example(161)]
    topics: Annotated[list[str], example(["shop/orders", "system/oplog"])]
    begin: Annotated[str, about("Position in the commit log.", _POSITION)]


class CommittedAnswer(Struct):
    """Positions in the commit log, and ids of the records. null: the topic was deleted."""

    begin: Annotated[str | None, example(_POSITION)]
    commit: Annotated[str | None, example(_POSITION)]
    records: Annotated[list[str | None], example([_POSITION])]


class WholeAnswer(CommittedAnswer):
    """The same, and the id of the transaction."""

    txn: Annotated[str, example(_TXN)]
