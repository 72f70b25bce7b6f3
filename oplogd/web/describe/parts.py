"""The parts of descriptions that all endpoints under /v1 share."""

from collections.abc import Mapping
from typing import Any

from oplogd.decode.media_types import AVRO, JSON
from oplogd.model.pointer import MAX_POINTER
from oplogd.web.describe.describe import PROBLEM_EXAMPLE, STALE

NAME = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}
NAMESPACE = {"name": "namespace", "in": "path", "required": True, "schema": NAME}
TOPIC = {"name": "topic", "in": "path", "required": True, "schema": NAME}

TTL_SCHEMA = {
    "type": ["integer", "string", "null"],
    "description": "Time to live in seconds: a whole number from 1 to 100 years, also as a string.",
}

MESSAGE_MEMBERS = {
    "payload": {"type": ["string", "null"]},
    "key": {"type": ["string", "null"], "description": "At most 1,024 bytes."},
    "headers": {
        "type": ["array", "null"],
        "items": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
    },
    "ttl": TTL_SCHEMA,
    "encoding": {
        "type": ["string", "null"],
        "enum": ["base64", None],
        "description": "base64: the payload is base64 of any bytes.",
    },
}
MESSAGE_SCHEMA = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "required": ["payload"],
            "additionalProperties": False,
            "properties": MESSAGE_MEMBERS,
        },
    ],
}

# Of a foreign transaction.
POINTER_SCHEMA = {
    "type": ["integer", "string"],
    "minimum": 0,
    "maximum": MAX_POINTER,
    "pattern": "^(?:0|[1-9][0-9]{0,18})$",
    "description": "The write pointer of a foreign transaction: a whole number below 2^62, also as"
    " a string.",
}
PUBLISHED_EXAMPLE = {
    "transactionWritePointer": 1732701600000000000,
    "messages": [{"publishTimestamp": 1732701600123, "sequenceId": 0}],
}


def publish_body(pointer: Mapping[str, Any], *required: str, least: int) -> dict[str, Any]:
    """Return the schema of a publish or store of at least ``least`` messages."""
    return {
        "type": "object",
        "required": [*required],
        "additionalProperties": False,
        "properties": {
            "messages": {"type": "array", "minItems": least, "items": MESSAGE_SCHEMA},
            "transactionWritePointer": pointer,
        },
    }


TTL_QUERY = {
    "name": "ttl",
    "in": "query",
    "description": "Time to live in seconds of messages that have none of their own.",
    "schema": {"type": "string"},
}

LIMIT = {
    "name": "limit",
    "in": "query",
    "description": "Items of a page. Without `limit` and `after` the list is whole.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 1000},
}
AFTER = {
    "name": "after",
    "in": "query",
    "description": "The header `Oplog-Next` of the page before.",
    "schema": {"type": "string"},
}


def list_answer(description: str, example: Any) -> dict[str, Any]:
    """Return the description of an answer with a list that has pages."""
    header = {
        "description": "There are more items: `after` of the next page.",
        "schema": {"type": "string"},
    }
    return {**json_answer(description, example), "headers": {"Oplog-Next": header}}


ERRORS = {
    400: "A name or the body is invalid. The message names the member at fault.",
    401: "The password is missing or wrong.",
    403: "Without an ingest password: a web page under a name that --allowed-hosts does not list.",
    404: "There is no topic or schema of this name.",
    406: "The Accept header does not name text/event-stream.",
    408: "The headers or the body were too slow.",
    409: "A topic of this name exists, the namespace is reserved, or the pointer is decided.",
    412: STALE,
    413: "The body or a message is too large, or there are more messages than the queue can hold.",
    415: "The body has another type or encoding.",
    429: "Too many wrong passwords came from this address or from others.",
    431: "The headers are too large.",
    507: "The store has no free number for another topic. Delete topics.",
    503: "The queue or the memory for bodies is full, or the store is unreachable. Try again after"
    " Retry-After seconds. Messages that are 'not confirmed' may still be stored.",
}
READ_ERRORS = (400, 401, 429, 503)
WRITE_ERRORS = (400, 401, 403, 429, 503)


def endpoint(
    id_: str,
    summary: str,
    description: str,
    answer: Mapping[str, Any],
    errors: tuple[int, ...],
    *,
    parameters: list[dict[str, Any]] | None = None,
    body: Mapping[str, Any] | None = None,
    status: int = 200,
    tag: str = "topics",
    told: Mapping[int, str] = ERRORS,
) -> dict[str, Any]:
    """Return the arguments of an endpoint's decorator. ``told``: the descriptions of errors."""
    request = {"requestBody": body} if body else {}
    given = [NAMESPACE, TOPIC] if parameters is None else parameters
    return {
        "operation_id": id_,
        "summary": summary,
        "description": description,
        "tags": [tag],
        "status_code": status,
        "response_model": None,
        "responses": {
            status: dict(answer),
            **{
                code: {"description": told[code], "content": PROBLEM_EXAMPLE}
                for code in sorted(errors)
            },
        },
        "openapi_extra": {"parameters": given, **request},
    }


def json_answer(description: str, example: Any) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"example": example}}}


def json_body(schema: Mapping[str, Any], example: Any, *, required: bool) -> dict[str, Any]:
    return {"required": required, "content": {JSON: {"schema": schema, "example": example}}}


def body_or_avro(schema: Mapping[str, Any], example: Any, *, required: bool) -> dict[str, Any]:
    return _with_avro(json_body(schema, example, required=required))


def json_or_avro_answer(description: str, example: Any) -> dict[str, Any]:
    return _with_avro(json_answer(description, example))


def _with_avro(described: dict[str, Any]) -> dict[str, Any]:
    described["content"][AVRO] = {"schema": {"type": "string", "format": "binary"}}
    return described
