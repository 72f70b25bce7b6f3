"""Descriptions and examples of topics in the OpenAPI document."""

from oplogd.decode.media_types import EVENT_STREAM
from oplogd.model.transaction import DEFAULT_ISOLATION, Isolation
from oplogd.topics.codec.avro import SCHEMAS
from oplogd.web.describe.describe import FENCE, GET
from oplogd.web.describe.parts import (
    AFTER,
    LIMIT,
    NAMESPACE,
    POINTER_SCHEMA,
    PUBLISHED_EXAMPLE,
    READ_ERRORS,
    TOPIC,
    TTL_QUERY,
    TTL_SCHEMA,
    WRITE_ERRORS,
    body_or_avro,
    endpoint,
    json_answer,
    json_body,
    json_or_avro_answer,
    list_answer,
    publish_body,
)
from oplogd.web.describe.pointers import SNAPSHOT_SCHEMA

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
_ISOLATION = {
    "name": "isolation",
    "in": "query",
    "description": "`read_committed`, the default: the messages of a transaction together, at its"
    " commit, and those of an aborted one never. `read_uncommitted`: every message as soon as it is"
    " written. Has no effect on `system/oplog`, which is always read committed.",
    "schema": {"type": "string", "enum": [*Isolation], "default": DEFAULT_ISOLATION},
}
_OPLOG_NOTE = " The topic `system/oplog` holds the operations."
_PROPERTIES = json_body(
    {
        "type": "object",
        "properties": {
            "ttl": TTL_SCHEMA,
            "pointers": {
                "type": ["string", "null"],
                "enum": ["on", "off", None],
                "description": "off: messages under pointers are refused (409).",
            },
            "pointer_timeout": {
                "type": ["integer", "string", "null"],
                "description": "How long a pointer stays open, in seconds: a whole number from 1 to"
                " 30 days, also as a string.",
            },
            "max_bytes": {
                "type": ["integer", "string", "null"],
                "description": "Bytes above which the oldest messages leave, at least 1,048,576,"
                " also as a string of digits. Without it: no bound.",
            },
        },
        "additionalProperties": False,
    },
    {"ttl": 3600, "max_bytes": 1073741824},
    required=False,
)
CREATE = endpoint(
    "create_topic",
    "Create a topic",
    "Without a time to live the topic has the store's default, without `pointer_timeout` the"
    " agent's `--pointer-timeout`.",
    json_answer("The new topic.", _TOPIC_EXAMPLE),
    (*WRITE_ERRORS, 409, 413, 507),
    body=_PROPERTIES,
)
CHANGE = endpoint(
    "change_topic",
    "Change the properties of a topic",
    "Replaces all properties: an absent one gets its default. Pointers that are open keep their"
    " time-outs.",
    json_answer("The changed topic.", _TOPIC_EXAMPLE),
    (*WRITE_ERRORS, 404, 409, 413),
    body=_PROPERTIES,
)
SHOW = endpoint(
    "show_topic",
    "Show a topic",
    "Shows the time to live that counts, and the other properties that are not the default."
    + _OPLOG_NOTE,
    json_answer("The topic.", _TOPIC_EXAMPLE),
    (*READ_ERRORS, 404),
)
LIST = endpoint(
    "list_topics",
    "List the topics of a namespace",
    "A namespace needs no creation: without topics the list is empty.",
    list_answer("The topics, sorted by name.", [_TOPIC_EXAMPLE]),
    READ_ERRORS,
    parameters=[NAMESPACE, LIMIT, AFTER],
)
NAMESPACES = endpoint(
    "list_namespaces",
    "List the namespaces that have topics",
    "The namespace `system` is always there: it has the topic `system/oplog`.",
    list_answer(
        "The namespaces, sorted by name, with the number of their topics.",
        [{"name": "shop", "topics": 2}, {"name": "system", "topics": 1}],
    ),
    READ_ERRORS,
    parameters=[LIMIT, AFTER],
)
DELETE = endpoint(
    "delete_topic",
    "Delete a topic with its messages",
    "A topic that is created again under this name is empty, and its ids go on ascending.",
    {"description": "The topic is deleted."},
    (*WRITE_ERRORS, 404, 409),
)
PUBLISH = endpoint(
    "publish",
    "Publish messages",
    "The messages are stored together or not at all, in their order. An answer of 200 means that"
    " they are durable. A message for `system/oplog` is an operation, or its JSON as text.\n\nWith"
    " `transactionWritePointer` the messages belong to a foreign transaction: readers with"
    " `isolation` `read_committed` wait for its end at POST /v1/pointers/{pointer}/commit or abort."
    " Without messages, the stored ones of the pointer are published; repeated, the answer is the"
    " same, and if none is stored, its `messages` are empty. A publish with a pointer takes no"
    " Oplog-Lease and no topic of `system`.",
    {
        **json_or_avro_answer(
            "The messages are durable. The body is empty without `transactionWritePointer`."
            " Otherwise it is the body of a rollback.",
            PUBLISHED_EXAMPLE,
        )
    },
    (*WRITE_ERRORS, 404, 408, 409, 412, 413, 415, 431),
    parameters=[
        NAMESPACE,
        TOPIC,
        FENCE,
        TTL_QUERY,
    ],
    body=body_or_avro(
        publish_body({**POINTER_SCHEMA, "type": ["integer", "string", "null"]}, least=0),
        {"messages": ["one", {"payload": "two", "key": "k", "headers": [["name", "value"]]}]},
        required=True,
    ),
)
POLL = endpoint(
    "poll",
    "Poll messages",
    "Returns the messages from a position on, at once, even if there is none. Returns about 1 MB at"
    " most, but at least one message. The header `Oplog-Gap: 1` says that messages after the"
    " position are gone. With `read_committed` it ends before the first message whose pointer is"
    " open, with a snapshot before the first one whose pointer is neither visible nor invalid. The"
    " header `Oplog-Held-By` names this pointer.",
    {
        **json_or_avro_answer(
            "The messages in their order.",
            [{"id": "0000018bcfe56800000000000000000000000000", "payload": "one"}],
        ),
        "headers": {
            "Oplog-Gap": {
                "description": "1 if messages that followed the position are gone.",
                "schema": {"type": "string"},
            },
            "Oplog-Held-By": {
                "description": "The pointer at whose message the answer ends, because the reader"
                " must wait.",
                "schema": {"type": "string"},
            },
        },
    },
    (*READ_ERRORS, 404, 408, 413, 415, 431),
    parameters=[NAMESPACE, TOPIC, _ISOLATION],
    body=body_or_avro(
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
                "transaction": SNAPSHOT_SCHEMA,
                "isolation": {
                    "type": ["string", "null"],
                    "enum": [*Isolation, None],
                    "description": "Wins over the query parameter of this name.",
                },
            },
        },
        {"startFrom": None, "inclusive": True, "limit": 100},
        required=False,
    ),
)
STREAM = endpoint(
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
    (*READ_ERRORS, 404, 406),
    parameters=[
        NAMESPACE,
        TOPIC,
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
        _ISOLATION,
    ],
)
SCHEMA = endpoint(
    "schema",
    "Show the Avro schema of a request or an answer",
    "Bodies of the type `avro/binary` are bare data, without a container. An agent that was"
    " installed without Avro refuses them (415). Needs no password.",
    json_answer("The schema.", SCHEMAS["PollRequest"]),
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
