"""Descriptions and examples of pointers of foreign transactions in the OpenAPI document."""

from functools import partial
from typing import Any

from oplogd.model.isolation import EntryKind
from oplogd.model.pointer import Decision
from oplogd.store.topics import MAX_OFFSET
from oplogd.topics.codec.codec import MAX_KEYS
from oplogd.topics.pointers.rules import MAX_TOPICS
from oplogd.topics.transactions.rules import DEFAULT_LIMIT, MAX_LIMIT
from oplogd.web.describe.parts import (
    AFTER,
    ERRORS,
    LIMIT,
    NAMESPACE,
    POINTER_SCHEMA,
    PUBLISHED_EXAMPLE,
    READ_ERRORS,
    TOPIC,
    TTL_QUERY,
    WRITE_ERRORS,
    body_or_avro,
    endpoint,
    json_answer,
    json_body,
    list_answer,
    publish_body,
)

_ID = str(PUBLISHED_EXAMPLE["transactionWritePointer"])
_POINTER = {
    "name": "pointer",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^(?:0|[1-9][0-9]{0,18})$"},
    "example": _ID,
}
_LONG = {"type": ["integer", "string"], "description": "A whole number of 64 bits."}
_LONGS = {"type": ["array", "null"], "items": _LONG}
_STAMP = "000001936d10397b0000"

SNAPSHOT_SCHEMA = {
    "type": ["object", "null"],
    "description": "The snapshot of a foreign transaction. It has no effect on `system/oplog`.",
    "required": ["readPointer"],
    "additionalProperties": False,
    "properties": {
        "readPointer": _LONG,
        "writePointer": {**_LONG, "type": ["integer", "string", "null"]},
        "inProgress": _LONGS,
        "invalid": _LONGS,
    },
}

_TOLD = {
    **ERRORS,
    400: "A name or the body is invalid, the topic is `system/oplog`, or the request has"
    " Oplog-Lease. The message names the member at fault.",
    409: "The pointer is decided (for a report: otherwise; for a rollback: committed), or the"
    " namespace is reserved.",
    413: "The body or a message is too large, or there are too many messages.",
    503: "The memory for bodies is full, too many messages wait for the store, the store is"
    " unreachable, or the agent is stopping. Try again after Retry-After seconds. A request"
    " that is 'not confirmed' may have been carried out.",
}
_BODY_ERRORS = (*WRITE_ERRORS, 404, 408, 409, 413, 415, 431)

_endpoint = partial(endpoint, tag="pointers", told=_TOLD)

STORE = _endpoint(
    "store",
    "Store messages under a pointer",
    "Nobody can read them before they are published: by a publish with the pointer and without"
    " messages. An answer of 200 means that they are durable. Sent again, they are stored twice.",
    {"description": "The messages are durable."},
    _BODY_ERRORS,
    parameters=[NAMESPACE, TOPIC, TTL_QUERY],
    body=body_or_avro(
        publish_body(POINTER_SCHEMA, "transactionWritePointer", "messages", least=1),
        {"transactionWritePointer": _ID, "messages": ["one"]},
        required=True,
    ),
)
ROLLBACK = _endpoint(
    "rollback",
    "Roll back messages under a pointer",
    "Takes the answer to a publish as it is, or its keys. Without any, everything under the pointer"
    " is rolled back, also messages that are only stored. No reader gets the messages afterwards."
    " Messages that are already rolled back, or belong to others, are passed over: repeat a request"
    " that got no answer. After the report of a commit it is refused; after the time-out it is the"
    " report of an abort.",
    {"description": "The messages are gone."},
    _BODY_ERRORS,
    parameters=[
        NAMESPACE,
        TOPIC,
        {
            "name": "force",
            "in": "query",
            "description": "`true`: also after the report of a commit. Readers may have the"
            " messages. Those that resume before them are told of a gap.",
            "schema": {"type": "boolean", "default": False},
        },
    ],
    body=body_or_avro(
        {
            "type": "object",
            "required": ["transactionWritePointer"],
            "additionalProperties": False,
            "properties": {
                "transactionWritePointer": POINTER_SCHEMA,
                "messages": {
                    "type": ["array", "null"],
                    "maxItems": MAX_KEYS,
                    "items": {
                        "type": "object",
                        "required": ["publishTimestamp", "sequenceId"],
                        "additionalProperties": False,
                        "properties": {
                            "publishTimestamp": {"type": "integer", "minimum": 0},
                            "sequenceId": {"type": "integer", "minimum": 0, "maximum": 65_535},
                        },
                    },
                },
                "rollbackKeys": {
                    "type": ["array", "null"],
                    "maxItems": MAX_KEYS,
                    "items": {"type": "string", "pattern": "^[0-9a-f]{20}$"},
                    "description": "Time and sequence of a message in hexadecimal digits. Cannot be"
                    " given together with `messages`.",
                },
            },
        },
        {"transactionWritePointer": _ID, "rollbackKeys": [_STAMP]},
        required=True,
    ),
)
_REPORT = json_body(
    {
        "type": "object",
        "required": ["topics"],
        "additionalProperties": False,
        "properties": {
            "topics": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_TOPICS,
                "items": {"type": "string", "description": "NAMESPACE/TOPIC."},
            }
        },
    },
    {"topics": ["shop/orders"]},
    required=True,
)


def _report(decision: Decision, summary: str, effect: str) -> dict[str, Any]:
    return _endpoint(
        f"{summary.split()[0].lower()}_pointer",
        summary,
        f"The owner of the foreign transaction reports its end for each topic in which it has"
        f" published. {effect} Nothing more can be published under the pointer in these topics."
        " It is for all of these topics, or refused for all. Repeated, the answer is the same.",
        json_answer(
            "The pointer is decided in these topics.",
            {"pointer": _ID, "state": decision, "topics": ["shop/orders"]},
        ),
        _BODY_ERRORS,
        parameters=[_POINTER],
        body=_REPORT,
    )


COMMIT = _report(
    Decision.COMMITTED,
    "Commit a pointer in topics",
    "Readers with `isolation` `read_committed` get its messages. Where it has timed out, they get"
    " them at the end of the topic.",
)
ABORT = _report(
    Decision.ABORTED,
    "Abort a pointer in topics",
    "Readers with `isolation` `read_committed` do not get its messages.",
)
_LIMIT = {
    "name": "limit",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
}
ALL_POINTERS = _endpoint(
    "list_all_pointers",
    "List the open pointers of all topics",
    "One item for each topic in which a pointer is open. `holds`: readers with `isolation`"
    " `read_committed` wait for it, because messages were published under it (`published`).",
    list_answer(
        "The pointers, the oldest first.",
        [
            {
                "namespace": "shop",
                "topic": "orders",
                "pointer": _ID,
                "state": "open",
                "holds": True,
                "begun_at": "2024-11-27T10:00:00.123Z",
                "expires_at": "2024-11-27T10:15:00.123Z",
                "published": True,
            }
        ],
    ),
    READ_ERRORS,
    parameters=[LIMIT, AFTER],
)
POINTERS = _endpoint(
    "list_pointers",
    "List the open pointers of a topic",
    "A pointer is open from its first message in the topic until it is decided. `published`:"
    " messages were published under it; otherwise they are only stored. With `state=timed-out`:"
    " the pointers that timed out with messages and were not reported since, with `timed_out_at`"
    " and `state` in place of `expires_at` and `published`.",
    list_answer(
        "The pointers, the oldest first.",
        [
            {
                "pointer": _ID,
                "begun_at": "2024-11-27T10:00:00.123Z",
                "expires_at": "2024-11-27T10:15:00.123Z",
                "published": True,
            }
        ],
    ),
    (*READ_ERRORS, 404),
    parameters=[
        NAMESPACE,
        TOPIC,
        {
            "name": "state",
            "in": "query",
            "schema": {"type": "string", "enum": ["open", "timed-out"], "default": "open"},
        },
        _LIMIT,
        AFTER,
    ],
)
ENTRIES = _endpoint(
    "list_entries",
    "List the entries of a topic",
    "Shows the kinds of entries, and the transactions to which they belong, but no message."
    f" Kinds are {', '.join(EntryKind)}.",
    json_answer(
        "The entries in their order.",
        [
            {
                "offset": 7,
                "id": _STAMP,
                "time": "2024-11-27T10:00:00.123Z",
                "kind": "direct",
                "pointer": _ID,
                "state": "open",
                "bytes": 17,
            }
        ],
    ),
    (*READ_ERRORS, 404),
    parameters=[
        NAMESPACE,
        TOPIC,
        {
            "name": "after",
            "in": "query",
            "description": "Begin with the entry after this offset. Default: the newest entries.",
            "schema": {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET},
        },
        _LIMIT,
    ],
)
