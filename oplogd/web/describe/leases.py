"""Descriptions and examples of leases in the OpenAPI document."""

from functools import partial

from oplogd.model.lease import MAX_NOTE_BYTES, MAX_TERM, MAX_TTL_MS, MIN_TTL_MS
from oplogd.web.describe.parts import (
    AFTER,
    ERRORS,
    LIMIT,
    NAME,
    READ_ERRORS,
    WRITE_ERRORS,
    endpoint,
    json_answer,
    json_body,
    list_answer,
)

_LEASE = {"name": "lease", "in": "path", "required": True, "schema": NAME, "example": "orders"}
_HOLDER = {
    "type": "string",
    "minLength": 1,
    "description": "At most 255 bytes, without control characters.",
}

_TOLD = {
    **ERRORS,
    404: "Nobody ever held a lease of this name.",
    409: "The lease has another holder or term, which the message names.",
    413: "The body is too large.",
    503: "The memory for bodies is full, the store is unreachable, or the agent is stopping. Try"
    " again after Retry-After seconds. A request that is 'not confirmed' may have been carried out;"
    " repeated, it continues.",
}
_BODY_ERRORS = (*WRITE_ERRORS, 408, 413, 415, 431)

_endpoint = partial(endpoint, tag="leases", told=_TOLD, parameters=[_LEASE])

POLL = _endpoint(
    "poll_lease",
    "Poll a lease: acquire, extend or look at it",
    "Acquires the lease with the next term if nobody holds it, or if it has expired. Extends it for"
    " its holder, with the same term, or with the next one if `refresh` is true. Changes nothing if"
    " another one holds it. The first poll creates the lease. It stays for ever, and its term never"
    " falls. A poll soon after the last one may leave the expiry as it is.",
    json_answer(
        "`leader`: the sender is the holder.",
        {"leader": True, "holder": "host-1:4711", "term": 7, "expires_in_ms": 10_000},
    ),
    _BODY_ERRORS,
    body=json_body(
        {
            "type": "object",
            "required": ["holder", "ttl_ms"],
            "additionalProperties": False,
            "properties": {
                "holder": _HOLDER,
                "ttl_ms": {
                    "type": "integer",
                    "minimum": MIN_TTL_MS,
                    "maximum": MAX_TTL_MS,
                    "description": "Time to live without another poll of the holder.",
                },
                "refresh": {
                    "type": "boolean",
                    "default": False,
                    "description": "The holder gets the next term.",
                },
                "note": {
                    "type": ["string", "null"],
                    "description": f"Text for others to read, at most {MAX_NOTE_BYTES:,} bytes."
                    " null keeps the note that is there.",
                },
            },
        },
        {"holder": "host-1:4711", "ttl_ms": 10_000},
        required=True,
    ),
)
SHOW = _endpoint(
    "show_lease",
    "Show a lease",
    "A released lease has no holder: null. An expired lease keeps its holder and term until it is"
    " acquired again, and publishing with this term is still possible.",
    json_answer(
        "The lease.",
        {
            "name": "orders",
            "holder": "host-1:4711",
            "term": 7,
            "expires_in_ms": 8123,
            "note": "",
        },
    ),
    (*READ_ERRORS, 404),
)
LIST = _endpoint(
    "list_leases",
    "List the leases that were ever held",
    "Each is shown as GET /v1/leases/{lease} shows it.",
    list_answer(
        "The leases, sorted by name.",
        [
            {
                "name": "orders",
                "holder": "host-1:4711",
                "term": 7,
                "expires_in_ms": 8123,
                "note": "",
            }
        ],
    ),
    READ_ERRORS,
    parameters=[LIMIT, AFTER],
)
RELEASE = _endpoint(
    "release_lease",
    "Release a lease",
    "Anyone may acquire it at once. Publishing with its term is refused. A repeated request gets"
    " the same answer until the lease is acquired again.",
    json_answer("The lease.", {"name": "orders", "holder": None, "term": 7, "expires_in_ms": 0}),
    (*_BODY_ERRORS, 404, 409),
    body=json_body(
        {
            "type": "object",
            "required": ["holder", "term"],
            "additionalProperties": False,
            "properties": {
                "holder": _HOLDER,
                "term": {"type": "integer", "minimum": 1, "maximum": MAX_TERM},
            },
        },
        {"holder": "host-1:4711", "term": 7},
        required=True,
    ),
)
