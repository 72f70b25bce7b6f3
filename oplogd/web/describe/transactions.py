"""Descriptions and examples of transactions in the OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from oplogd.model.transaction import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS, State
from oplogd.topics.transactions.rules import DEFAULT_LIMIT, MAX_GROUP, MAX_LIMIT
from oplogd.web.describe.describe import FENCE
from oplogd.web.describe.parts import (
    AFTER,
    ERRORS,
    MESSAGE_MEMBERS,
    READ_ERRORS,
    WRITE_ERRORS,
    endpoint,
    json_answer,
    json_body,
    list_answer,
)

_ID = "6494239639384848945"
_TXN = {
    "name": "txn",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9]{19}$"},
    "example": _ID,
}
_GROUP = {"type": "string", "pattern": f"^[A-Za-z0-9._-]{{1,{MAX_GROUP}}}$"}
_POSITION = "000001937f4d2a1b000000000000000000000000"
_RECORD_ID = "000001937f4d2b44000000000000000000010001"
_OPERATION_ID = "674f1a2b018c000000000007"
_OPEN = {
    "txn": _ID,
    "state": "open",
    "group": "default",
    "begun_at": "2024-12-01T10:00:00.000Z",
    "expires_at": "2024-12-01T10:01:00.000Z",
    "records": 2,
    "bytes": 161,
    "topics": ["shop/orders", "system/oplog"],
    "begin": _POSITION,
}
_ABORTED = {**_OPEN, "state": "aborted", "reason": "aborted by the client"}

_TOLD = {
    **ERRORS,
    404: "There is no such transaction, or it was forgotten, or there is no topic of this name.",
    409: "The transaction has committed, was aborted or timed out; or an lsn was used with other"
    " content; or records are missing; or Oplog-Lease is not that of the begin. The message gives"
    " the reason.",
    412: "The term of the begin's Oplog-Lease is over, or the lease has no holder: the transaction"
    " is aborted.",
    413: "The body or a message is too large, or the transaction has too many records or bytes.",
    503: "The memory for bodies is full, the store is unreachable, or the agent is stopping. Try"
    " again after Retry-After seconds. A request that is 'not confirmed' may have been carried out;"
    " repeated, it continues.",
}
_BODY_ERRORS = (*WRITE_ERRORS, 404, 408, 413, 415, 431)

_endpoint = partial(endpoint, tag="transactions", told=_TOLD)


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


_COUNT = {"type": "integer", "minimum": 0}
_RECORD = _object(
    {
        "topic": {"type": "string", "description": "NAMESPACE/TOPIC."},
        "lsn": {
            **_COUNT,
            "description": "Number of the record in its transaction: 0, 1, 2, in all topics"
            " together.",
        },
        **MESSAGE_MEMBERS,
        "payload": {
            "type": ["string", "object", "null"],
            "description": "In `system/oplog` an operation, or its JSON as text; then no other"
            " member is allowed.",
        },
    },
    "topic",
    "lsn",
    "payload",
)

BEGIN = _endpoint(
    "begin_transaction",
    "Begin a transaction",
    "A group selects the commit log `system/_txn.GROUP`: the commits of a group have one order."
    " With `topic` the log of that topic is the commit log, and all records must be in that topic."
    " Nothing commits after the time-out. With Oplog-Lease it commits only if the lease still has"
    " this term when the commit is decided; later requests may repeat the header.",
    {
        **json_answer(
            "The new transaction.", {"txn": _ID, "expires_at": "2024-12-01T10:01:00.000Z"}
        ),
        "headers": {
            "Location": {"description": "Path of the transaction.", "schema": {"type": "string"}}
        },
    },
    (*_BODY_ERRORS, 412, 507),
    parameters=[FENCE],
    body=json_body(
        _object(
            {
                "group": {**_GROUP, "type": ["string", "null"], "default": "default"},
                "topic": {"type": ["string", "null"], "description": "NAMESPACE/TOPIC."},
                "timeout_ms": {
                    "type": ["integer", "null"],
                    "minimum": 1,
                    "maximum": MAX_TIMEOUT_MS,
                    "default": DEFAULT_TIMEOUT_MS,
                },
            }
        ),
        {"timeout_ms": 60_000},
        required=False,
    ),
    status=201,
)
RECORDS = _endpoint(
    "write_records",
    "Write records of a transaction",
    "The records are stored together or not at all. A record that was written before, with the same"
    " lsn and content, is passed over: repeat a request that got no answer. Readers of a topic see"
    " records at once, unless they read with `isolation` `read_committed`: then they see them after"
    " the commit. Operations always wait for the commit.",
    json_answer("The transaction.", _OPEN),
    (*_BODY_ERRORS, 409, 412),
    parameters=[_TXN, FENCE],
    body=json_body(
        _object({"records": {"type": "array", "minItems": 1, "items": _RECORD}}, "records"),
        {
            "records": [
                {"topic": "shop/orders", "lsn": 0, "payload": "one", "key": "k"},
                {
                    "topic": "system/oplog",
                    "lsn": 1,
                    "payload": {"event": "insert", "type": "order", "id": "1"},
                },
            ]
        },
        required=True,
    ),
)
COMMIT = _endpoint(
    "commit_transaction",
    "Commit a transaction",
    "`records` is the number of records that were written, with lsn 0 to `records` - 1. If one is"
    " missing, the transaction stays open. Repeated, the answer is the same.",
    json_answer(
        "Positions of begin and commit in the commit log, and the ids of the records by lsn. An id"
        " is null if the record's topic was deleted.",
        {"begin": _POSITION, "commit": _POSITION, "records": [_RECORD_ID, _OPERATION_ID]},
    ),
    (*_BODY_ERRORS, 409, 412),
    parameters=[_TXN, FENCE],
    body=json_body(_object({"records": _COUNT}, "records"), {"records": 2}, required=True),
)
ABORT = _endpoint(
    "abort_transaction",
    "Abort a transaction",
    "Readers with `isolation` `read_committed` never see its records. Repeated, or after a"
    " time-out, the answer is the same.",
    json_answer("The transaction.", _ABORTED),
    (*_BODY_ERRORS, 409),
    parameters=[_TXN, FENCE],
    body=json_body(_object({}), {}, required=False),
)
SHOW = _endpoint(
    "show_transaction",
    "Show a transaction",
    "A finished transaction is forgotten after a day.",
    json_answer("The transaction.", _OPEN),
    (*READ_ERRORS, 404),
    parameters=[_TXN],
)
LIST = _endpoint(
    "list_transactions",
    "List transactions",
    "Finished transactions of the last day are among them.",
    list_answer("The transactions, the newest first.", [_OPEN]),
    READ_ERRORS,
    parameters=[
        {"name": "state", "in": "query", "schema": {"type": "string", "enum": [*State]}},
        {"name": "group", "in": "query", "schema": _GROUP},
        {
            "name": "limit",
            "in": "query",
            "schema": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "default": DEFAULT_LIMIT,
            },
        },
        AFTER,
    ],
)
