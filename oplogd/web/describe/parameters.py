"""Parameters of endpoints, as FastAPI reads and describes them.

Functions of ours check the values: their errors have our sentences. FastAPI's own would be answered
as 422, and repeat the value.
"""

from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic import PlainValidator, WithJsonSchema

from oplogd.model.pointer import parse_pointer
from oplogd.model.transaction import Isolation, State, parse_id
from oplogd.store.topics import MAX_OFFSET
from oplogd.topics.codec.avro import SCHEMAS
from oplogd.topics.pointers import rules as pointers
from oplogd.topics.transactions import rules as transactions


def _text(*examples: str, **schema: Any) -> WithJsonSchema:
    """Return the schema of a text. FastAPI's own schema would allow null."""
    return WithJsonSchema({"type": "string", "examples": [*examples], **schema})


def _query(text: str, *examples: str, **schema: Any) -> Any:
    """Return a parameter for the document only."""
    return Annotated[str | None, _text(*examples, **schema), Query(description=text)]


_NAME = {"pattern": "^[A-Za-z0-9._-]{1,249}$"}
_LIMIT = WithJsonSchema({"type": "integer", "minimum": 1, "maximum": transactions.MAX_LIMIT})

NamespacePart = Annotated[str, Path(json_schema_extra=_NAME)]
TopicPart = Annotated[str, Path(json_schema_extra=_NAME)]
OnceKeyName = Annotated[str, Path(json_schema_extra=_NAME, examples=["import-7"])]
LeaseName = Annotated[str, Path(json_schema_extra=_NAME, examples=["orders"])]
Txn = Annotated[
    int, PlainValidator(parse_id), _text("6494239639384848945", pattern="^[0-9]{19}$"), Path()
]
Pointer = Annotated[
    int,
    PlainValidator(lambda given: parse_pointer(given, "pointer")),
    _text("1732701600000000000", pattern="^(?:0|[1-9][0-9]{0,18})$"),
    Path(),
]
SchemaName = Annotated[str, Path(json_schema_extra={"enum": [*SCHEMAS]})]

Limit = Annotated[
    int,
    PlainValidator(transactions.parse_limit),
    _LIMIT,
    Query(description=f"Most items. Default: {transactions.DEFAULT_LIMIT}."),
]
PageLimit = Annotated[
    int | None,
    PlainValidator(transactions.parse_limit),
    _LIMIT,
    Query(description="Items of a page. Without `limit` and `after` the list is whole."),
]
After = Annotated[str, Query(description="The header `Oplog-Next` of the page before.")]
AfterOffset = Annotated[
    int | None,
    PlainValidator(pointers.parse_after),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_OFFSET}),
    Query(description="Begin with the entry after this offset. Default: the newest entries."),
]
StateOfTransaction = Annotated[
    State | None, PlainValidator(transactions.parse_state), _text(enum=[*State]), Query()
]
Group = Annotated[
    str | None,
    PlainValidator(transactions.group_name),
    _text(pattern=f"^[A-Za-z0-9._-]{{1,{transactions.MAX_GROUP}}}$"),
    Query(),
]
TimedOut = Annotated[
    bool,
    PlainValidator(pointers.parse_state),
    _text(enum=["open", "timed-out"]),
    Query(alias="state", description="Default: open."),
]
Force = Annotated[
    bool,
    PlainValidator(pointers.parse_force),
    WithJsonSchema({"type": "boolean"}),
    Query(
        description="`true`: also after the report of a commit. Readers may have the messages."
        " Readers that resume before them get a gap."
    ),
]
TtlQuery = Annotated[
    str | None,
    _text(),
    Query(description="Time to live in seconds of messages that have none of their own."),
]
FenceHeader = Annotated[
    str | None,
    _text("orders; term=7", pattern="^[A-Za-z0-9._-]{1,249}; *term=[0-9]{1,18}$"),
    Header(
        alias="Oplog-Lease",
        description="Store only if the lease still has this term: see /v1/leases.",
    ),
]

ConsumerName = Annotated[
    str,
    Path(json_schema_extra={"pattern": "^[A-Za-z0-9._-]{1,100}$"}, examples=["search"]),
]
ShardNumber = Annotated[
    int | None,
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 255}),
    Query(description="The number of the shard. Required if the consumer has several."),
]
TermQuery = Annotated[
    str | None,
    _text("7", pattern="^[1-9][0-9]{0,17}$"),
    Query(description="The term of this reader, to reconnect. Without it, take the shard over."),
]

# Parameters of endpoints that read their request themselves.
OF_TOPIC = {"namespace": NamespacePart, "topic": TopicPart}
ISOLATION = {
    "isolation": _query(
        "`read_committed`, the default: the messages of a transaction together, at its commit, and"
        " those of an aborted one never. `read_uncommitted`: each message as soon as it is written."
        " Has no effect on `system/oplog`, which is always read committed.",
        enum=[*Isolation],
    )
}
OF_SHARD = {
    "shard": _query(
        "I/N: only the entries of part I of N, from 0 on. An object, or a key, is always in the"
        " same shard.",
        "3/8",
        pattern="^[0-9]{1,3}/[0-9]{1,3}$",
    )
}
SHARD_TEXT = "The shard of the answer. Older agents ignore `shard`, and have no such header."
_LAST = "The last received id, a time in milliseconds since 1970, or 0 for everything."
OF_STREAM = {
    "last_id": Annotated[
        str | None,
        _text("0", pattern="^(?:[0-9]{1,13}|[0-9a-f]{24}|[0-9a-f]{40})$"),
        Header(alias="Last-Event-ID", description=_LAST),
    ],
    "last_event_id": _query("The same, for clients that cannot set the header.", "0"),
    "since": _query(
        "Start with the objects changed, or the messages sent, since this time: RFC 3339, or"
        " milliseconds since 1970.",
        "1415271879041",
    ),
    "checkpoint": _query("1: also send the position reached, in blocks with only an id.", "1"),
    "name": _query(
        "Name of the consumer in /metrics: up to 100 letters, digits, '.', '_', '-'.", "search"
    ),
    "token": _query("Token of POST /token."),
}
_FILTERS_OF_OBJECTS = {
    "types": _query("Only these types: comma-separated, or repeated parameters.", "video,user"),
    "parents": _query(
        "Only objects with one of these parents: comma-separated, or repeated parameters.",
        "user/x3kd2",
    ),
    "ids": _query(
        "Only the objects with one of these ids, of any type: comma-separated, or repeated"
        " parameters.",
        "xekw,x3kd2",
    ),
}
FILTERS = {
    **_FILTERS_OF_OBJECTS,
    "events": _query(
        "Only these events: insert, update, delete; comma-separated, or repeated parameters. A live"
        " object of a replication counts as an insert or update.",
        "insert,delete",
    ),
}
OF_OBJECTS = {
    **_FILTERS_OF_OBJECTS,
    **OF_SHARD,
    "limit": Annotated[
        int | None,
        WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 10_000}),
        Query(description="Most objects of a page. Default: 1,000."),
    ],
    "after": After,
    "token": _query("Token of POST /token."),
}
OF_OBJECT = {
    "type": Annotated[str, _text("video"), Path()],
    "id": Annotated[str, _text("xekw"), Path(description="Escape it for the URL.")],
    "token": _query("Token of POST /token."),
}
