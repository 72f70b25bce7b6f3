"""Descriptions and examples of topics in the OpenAPI document."""

from collections.abc import Mapping
from typing import Any

from oplogd.media_types import AVRO, EVENT_STREAM, JSON
from oplogd.topics.avro import SCHEMAS
from oplogd.web.describe import GET, PROBLEM_EXAMPLE

_NAME = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}
_NAMESPACE = {"name": "namespace", "in": "path", "required": True, "schema": _NAME}
_TOPIC = {"name": "topic", "in": "path", "required": True, "schema": _NAME}
_TOPIC_EXAMPLE = {"name": "orders", "properties": {"ttl": "604800"}}
_STREAM_EXAMPLE = """id: 0000018bcfe56800000000000000000000000000
event: message
data: {"payload":"one"}

"""
# Parameters that a stream shares with the stream of operations.
_STREAM_QUERY: dict[str, dict[str, str]] = {
    "last_event_id": {},
    "since": {
        "description": "Start with the messages at or after this time: RFC 3339, or milliseconds"
        " since 1970."
    },
    "checkpoint": {},
    "name": {},
    "token": {},
}
_OPLOG_NOTE = " The topic `system/oplog` holds the operations."
_TTL_SCHEMA = {
    "type": ["integer", "string", "null"],
    "description": "Time to live in seconds: a whole number from 1 to 100 years, also as a string.",
}

_ERRORS = {
    400: "A name or the body is invalid. The message names the member at fault.",
    401: "The password is missing or wrong.",
    403: "Without an ingest password: a web page under a name that --allowed-hosts does not list.",
    404: "There is no topic or schema of this name.",
    406: "The Accept header does not name text/event-stream.",
    408: "The headers or the body were too slow.",
    409: "A topic of this name exists, or the namespace is reserved.",
    413: "The body or a message is too large, or there are more messages than the queue can hold.",
    415: "The body has another type or encoding.",
    429: "Too many wrong passwords came from this address or from others.",
    431: "The headers are too large.",
    503: "The queue or the memory for bodies is full, or the store is away. Try again after"
    " Retry-After seconds. Messages that are 'not confirmed' may still be stored.",
}
_READ_ERRORS = (400, 401, 429, 503)
_WRITE_ERRORS = (400, 401, 403, 429, 503)


def _endpoint(
    id_: str,
    summary: str,
    description: str,
    answer: Mapping[str, Any],
    errors: tuple[int, ...],
    *,
    parameters: list[dict[str, Any]] | None = None,
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    request = {"requestBody": body} if body else {}
    return {
        "operation_id": id_,
        "summary": summary,
        "description": description,
        "tags": ["topics"],
        "response_model": None,
        "responses": {
            200: dict(answer),
            **{
                code: {"description": _ERRORS[code], "content": PROBLEM_EXAMPLE}
                for code in sorted(errors)
            },
        },
        "openapi_extra": {"parameters": parameters or [_NAMESPACE, _TOPIC], **request},
    }


def _json(description: str, example: Any) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"example": example}}}


def _body(schema: Mapping[str, Any], example: Any, *, required: bool) -> dict[str, Any]:
    return {"required": required, "content": {JSON: {"schema": schema, "example": example}}}


def _body_or_avro(schema: Mapping[str, Any], example: Any, *, required: bool) -> dict[str, Any]:
    return _with_avro(_body(schema, example, required=required))


def _json_or_avro(description: str, example: Any) -> dict[str, Any]:
    return _with_avro(_json(description, example))


def _with_avro(described: dict[str, Any]) -> dict[str, Any]:
    described["content"][AVRO] = {"schema": {"type": "string", "format": "binary"}}
    return described


_PROPERTIES = _body(
    {"type": "object", "properties": {"ttl": _TTL_SCHEMA}, "additionalProperties": False},
    {"ttl": 3600},
    required=False,
)
_MESSAGE_SCHEMA = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "required": ["payload"],
            "additionalProperties": False,
            "properties": {
                "payload": {"type": ["string", "null"]},
                "key": {"type": ["string", "null"], "description": "At most 1,024 bytes."},
                "headers": {
                    "type": ["array", "null"],
                    "items": {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": 2,
                        "maxItems": 2,
                    },
                },
                "ttl": _TTL_SCHEMA,
                "encoding": {
                    "type": ["string", "null"],
                    "enum": ["base64", None],
                    "description": "base64: the payload is base64 of any bytes.",
                },
            },
        },
    ],
}

CREATE = _endpoint(
    "create_topic",
    "Create a topic",
    "Without a time to live the topic has the store's default.",
    _json("The new topic.", _TOPIC_EXAMPLE),
    (*_WRITE_ERRORS, 409, 413),
    body=_PROPERTIES,
)
CHANGE = _endpoint(
    "change_topic",
    "Change the properties of a topic",
    "Replaces all properties: an absent one gets its default.",
    _json("The changed topic.", _TOPIC_EXAMPLE),
    (*_WRITE_ERRORS, 404, 409, 413),
    body=_PROPERTIES,
)
SHOW = _endpoint(
    "show_topic",
    "Show a topic",
    "Shows the properties that count, defaults included." + _OPLOG_NOTE,
    _json("The topic.", _TOPIC_EXAMPLE),
    (*_READ_ERRORS, 404),
)
LIST = _endpoint(
    "list_topics",
    "List the topics of a namespace",
    "A namespace needs no creation: without topics the list is empty.",
    _json("The topics, sorted by name.", [_TOPIC_EXAMPLE]),
    _READ_ERRORS,
    parameters=[_NAMESPACE],
)
DELETE = _endpoint(
    "delete_topic",
    "Delete a topic with its messages",
    "A topic that is created again under this name is empty, and its ids go on ascending.",
    {"description": "The topic is deleted."},
    (*_WRITE_ERRORS, 404, 409),
)
PUBLISH = _endpoint(
    "publish",
    "Publish messages",
    "The messages are stored together or not at all, in their order. An answer of 200 means that"
    " they are durable. A message for `system/oplog` is an operation, or its JSON as text.",
    {"description": "The messages are durable."},
    (*_WRITE_ERRORS, 404, 408, 413, 415, 431),
    parameters=[
        _NAMESPACE,
        _TOPIC,
        {
            "name": "ttl",
            "in": "query",
            "description": "Time to live in seconds of messages that have none of their own.",
            "schema": {"type": "string"},
        },
    ],
    body=_body_or_avro(
        {
            "type": "object",
            "required": ["messages"],
            "additionalProperties": False,
            "properties": {
                "messages": {"type": "array", "minItems": 1, "items": _MESSAGE_SCHEMA},
                "transactionWritePointer": {"type": "null"},
            },
        },
        {"messages": ["one", {"payload": "two", "key": "k", "headers": [["name", "value"]]}]},
        required=True,
    ),
)
POLL = _endpoint(
    "poll",
    "Poll messages",
    "Returns the messages from a position on, at once, even if there is none. Returns about 1 MB at"
    " most, but at least one message. The header `Oplog-Gap: 1` says that messages after the"
    " position are gone.",
    {
        **_json_or_avro(
            "The messages in their order.",
            [{"id": "0000018bcfe56800000000000000000000000000", "payload": "one"}],
        ),
        "headers": {
            "Oplog-Gap": {
                "description": "1 if messages that followed the position are gone.",
                "schema": {"type": "string"},
            }
        },
    },
    (*_READ_ERRORS, 404, 408, 413, 415, 431),
    body=_body_or_avro(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "startFrom": {
                    "type": ["string", "integer", "null"],
                    "description": "An id, a time in milliseconds since 1970, or null for the"
                    " oldest message.",
                },
                "inclusive": {
                    "type": "boolean",
                    "description": "false: after the id, or after all messages of that time.",
                },
                "limit": {"type": ["integer", "null"], "minimum": 1},
                "transaction": {"type": "null"},
            },
        },
        {"startFrom": None, "inclusive": True, "limit": 100},
        required=False,
    ),
)
STREAM = _endpoint(
    "follow_topic",
    "Follow the stream of a topic",
    "Requires `Accept: text/event-stream`. The stream starts with the next message, unless"
    " Last-Event-ID, last_event_id or since gives a position. The position `0` starts with the"
    " oldest message. If messages after the position are gone, the stream sends `reset` and starts"
    " with the oldest message. The stream of a deleted topic ends. The stream of `system/oplog` is"
    " that of `/ops`.",
    {
        "description": "Server-sent events. If the agent is stopping, the stream ends at once.",
        "content": {EVENT_STREAM: {"example": _STREAM_EXAMPLE}},
    },
    (*_READ_ERRORS, 404, 406),
    parameters=[
        _NAMESPACE,
        _TOPIC,
        {
            "name": "Last-Event-ID",
            "in": "header",
            "description": "The last received id, a time in milliseconds since 1970, or 0 for the"
            " oldest message.",
            "schema": {"type": "string", "pattern": "^(?:[0-9]{1,13}|[0-9a-f]{40})$"},
            "example": "0",
        },
        *(
            {**each, **_STREAM_QUERY[each["name"]]}
            for each in GET["openapi_extra"]["parameters"]
            if each["name"] in _STREAM_QUERY
        ),
    ],
)
SCHEMA = _endpoint(
    "schema",
    "Show the Avro schema of a request or an answer",
    "Bodies of the type `avro/binary` are bare data, without a container. Needs no password.",
    _json("The schema.", SCHEMAS["PollRequest"]),
    (404,),
    parameters=[
        {
            "name": "name",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "enum": [*SCHEMAS]},
        }
    ],
)
