"""Descriptions and examples of the OpenAPI document, shown at /docs."""

from typing import Any

INTRODUCTION = """An operation log. Producers send operations: an object was inserted, updated
or deleted. Consumers follow the stream of operations. Producers may also send operations by UDP,
one JSON object per datagram, by default on the same port. The header Oplog-Store of every answer
names the store."""

OPERATION_EXAMPLE = {
    "event": "insert",
    "type": "video",
    "id": "xekw",
    "parents": ["user/x3kd2"],
    "timestamp": "2014-11-06T11:04:39.041Z",
}
_OPERATION_SCHEMA = {
    "type": "object",
    "required": ["event", "type", "id"],
    "properties": {
        "event": {
            "type": "string",
            "enum": ["insert", "update", "delete"],
            "description": "In upper or lower case.",
        },
        "type": {
            "type": "string",
            "description": "At most 255 bytes, no '/' or ','; stored in lower case.",
        },
        "id": {"type": "string", "description": "At most 1,024 bytes."},
        "parents": {"type": ["array", "null"], "items": {"type": "string"}},
        "timestamp": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "When the object changed. Default: the time of arrival.",
        },
    },
}
PROBLEM_EXAMPLE = {
    "application/problem+json": {
        "example": {
            "type": "about:blank",
            "title": "Bad Request",
            "status": 400,
            "detail": "event: must be insert, update or delete",
            "errors": [{"line": 1, "field": "event", "reason": "must be insert, update or delete"}],
        }
    }
}
_STREAM_EXAMPLE = """id: 545b55c7002900000000002a
event: insert
data: {"timestamp":"2014-11-06T11:04:39.041Z","parents":["user/x3kd2"],"type":"video","id":"xekw"}

"""


FENCE = {
    "name": "Oplog-Lease",
    "in": "header",
    "description": "Store only if the lease still has this term: see /v1/leases.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}; *term=[0-9]{1,18}$"},
    "example": "orders; term=7",
}
STALE = "The term of Oplog-Lease is over, or the lease has no holder. Nothing was stored."


def _answers(*answers: tuple[int, str]) -> dict[int | str, dict[str, Any]]:
    return {
        code: {"description": text, **({"content": PROBLEM_EXAMPLE} if code >= 400 else {})}
        for code, text in answers
    }


def _query(name: str, text: str, example: str) -> dict[str, Any]:
    schema = {"type": "string"}
    return {"name": name, "in": "query", "description": text, "schema": schema, "example": example}


POST: dict[str, Any] = {
    "operation_id": "ingest",
    "summary": "Store operations",
    "description": "Accepts one operation, a JSON array of operations, or NDJSON. A batch is stored"
    " as a whole or not at all. The body may be compressed with gzip. An answer of 204 or 200 means"
    " that the operations are durable. Its header Oplog-Ignored names unknown members, which were"
    " ignored.",
    "status_code": 204,
    "response_model": None,
    "responses": {
        **_answers(
            (204, "The operation is stored."),
            (400, "Invalid or empty. The invalid lines are named, nothing was stored."),
            (401, "The ingest password is missing or wrong."),
            (
                403,
                "Without an ingest password: a web page under a name that --allowed-hosts does not"
                " list.",
            ),
            (408, "The headers or the body were too slow."),
            (412, STALE),
            (413, "The body is too large, or has more operations than the queue can hold."),
            (415, "The body is neither JSON nor NDJSON."),
            (429, "Too many wrong passwords came from this address or from others."),
            (431, "The headers are too large."),
            (
                503,
                "The queue or the memory for bodies is full, or the store is unreachable. Try again"
                " after Retry-After seconds. Operations 'not confirmed' may still be stored.",
            ),
        ),
        200: {
            "description": "The batch is stored.",
            "content": {"application/json": {"example": {"ingested": 2}}},
        },
    },
    "openapi_extra": {
        "parameters": [FENCE],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "oneOf": [_OPERATION_SCHEMA, {"type": "array", "items": _OPERATION_SCHEMA}],
                    },
                    "examples": {
                        "one": {"summary": "One operation", "value": OPERATION_EXAMPLE},
                        "batch": {
                            "summary": "A batch",
                            "value": [
                                OPERATION_EXAMPLE,
                                {"event": "delete", "type": "video", "id": "x9"},
                            ],
                        },
                    },
                },
                "application/x-ndjson": {
                    "schema": {"type": "string"},
                    "example": '{"event":"insert","type":"video","id":"xekw"}\n'
                    '{"event":"delete","type":"video","id":"x9"}\n',
                },
            },
        },
    },
}

GET: dict[str, Any] = {
    "operation_id": "follow",
    "summary": "Follow the stream of operations",
    "description": "Requires `Accept: text/event-stream`. The stream starts with the next"
    " operation, unless Last-Event-ID, last_event_id or since gives a position. The position"
    " `0` starts a full replication: `reset`, every object that exists, `live`.",
    "response_model": None,
    "responses": {
        **_answers(
            (400, "Last-Event-ID, last_event_id, since, checkpoint or name is invalid."),
            (401, "The password, cookie or token is missing, wrong or expired."),
            (429, "Too many wrong passwords, or too many consumers from this address."),
            (406, "The Accept header does not name text/event-stream."),
            (503, "The store is unreachable, or too many consumers are connected."),
        ),
        200: {
            "description": "Server-sent events. If the agent is stopping, the stream ends at once.",
            "headers": {
                "Oplog-Store": {
                    "description": "Identity of the store, made once and kept in it. Every answer"
                    " has it, as soon as the agent knows it.",
                    "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
                }
            },
            "content": {"text/event-stream": {"example": _STREAM_EXAMPLE}},
        },
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "description": "The last received id: an event id (24 hexadecimal digits), a"
                " replication id (milliseconds since 1970), or 0 for a full replication.",
                "schema": {"type": "string", "pattern": "^(?:[0-9]{1,13}|[0-9a-f]{24})$"},
                "example": "0",
            },
            _query("last_event_id", "The same, for clients that cannot set the header.", "0"),
            _query(
                "since",
                "Start with the objects changed since this time: RFC 3339, or milliseconds since"
                " 1970.",
                "1415271879041",
            ),
            _query(
                "types", "Only these types: comma-separated, or repeated parameters.", "video,user"
            ),
            _query(
                "parents",
                "Only objects with one of these parents: comma-separated, or repeated parameters.",
                "user/x3kd2",
            ),
            _query(
                "checkpoint", "1: also send the position reached, in blocks with only an id.", "1"
            ),
            _query(
                "name",
                "Name of the consumer in /metrics: up to 100 letters, digits, '.', '_', '-'.",
                "search",
            ),
            _query(
                "token",
                "Token of POST /token, for pages of other origins, which cannot send the password.",
                "",
            ),
        ]
    },
}

STATUS: dict[str, Any] = {
    "operation_id": "status",
    "summary": "Counters and the state of queue, ring and store",
    "description": "For requests with the password of the stream, also the connected consumers and"
    " the last refused datagrams. If no password is set, they are shown on this machine only. The"
    " lag of a consumer counts what was not yet handed to its connection, not what it has not"
    " handled.",
    "response_model": None,
    "responses": {
        200: {"description": "OK", "content": {"application/json": {"example": {"status": "OK"}}}},
        503: {
            "description": "The store is unreachable. The queue holds the received operations.",
            "content": {
                "application/json": {
                    "example": {"status": "DEGRADED", "reason": "store oplog.db: the disk is full"}
                }
            },
        },
    },
}
LIVE: dict[str, Any] = {
    "operation_id": "live",
    "summary": "Check that the process works",
    "response_model": None,
    "responses": {200: {"description": "The process works, also while the store is unreachable."}},
}
READY: dict[str, Any] = {
    "operation_id": "ready",
    "summary": "Check that the store answers",
    "response_model": None,
    "responses": _answers(
        (200, "The store answers."), (503, "The store does not answer, or the agent is stopping.")
    ),
}
METRICS: dict[str, Any] = {
    "operation_id": "metrics",
    "summary": "The numbers of /status for Prometheus",
    "response_model": None,
    "responses": {200: {"description": "Prometheus text format."}},
}
SESSION: dict[str, Any] = {
    "operation_id": "session",
    "summary": "Check whether this browser may follow the stream",
    "response_model": None,
    "responses": {
        200: {
            "description": "The state of the session. Needs no password.",
            "content": {
                "application/json": {
                    "example": {"password_needed": True, "signed_in": False, "expires": None}
                }
            },
        }
    },
}
SIGN_IN: dict[str, Any] = {
    "operation_id": "sign_in",
    "summary": "Sign in: get a cookie that allows following the stream",
    "status_code": 204,
    "response_model": None,
    "responses": _answers(
        (204, "The cookie is set."),
        (400, "The body is not an object with only a password."),
        (401, "The password is wrong."),
        (409, "No password is set."),
        (413, "The body is too large."),
        (415, "The body is not application/json."),
        (429, "Too many wrong passwords came from this address or from others."),
    ),
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"example": {"password": "secret"}}},
        }
    },
}
SIGN_OUT: dict[str, Any] = {
    "operation_id": "sign_out",
    "summary": "Sign out: delete the cookie",
    "status_code": 204,
    "response_model": None,
    "responses": _answers(
        (204, "The cookie is deleted."),
        (400, "The body or query has options; there are none."),
        (413, "The body is too large."),
    ),
}
TOKEN: dict[str, Any] = {
    "operation_id": "token",
    "summary": "Get a token for following the stream from a page of another origin",
    "description": "For the server of that page, which sends the password by HTTP Basic.",
    "response_model": None,
    "responses": {
        **_answers(
            (400, "The body or query has options; there are none."),
            (401, "The password is missing or wrong."),
            (409, "No password is set."),
            (413, "The body is too large."),
            (429, "Too many wrong passwords came from this address or from others."),
        ),
        200: {
            "description": "The token.",
            "content": {
                "application/json": {
                    "example": {
                        "token": "1763632800.…",
                        "expires": "2025-11-20T10:00:00.000Z",
                        "seconds": 900,
                    }
                }
            },
        },
    },
}
