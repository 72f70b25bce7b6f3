"""The bodies of requests for named consumers, and a consumer as clients see it. No I/O."""

import re
from collections.abc import Callable
from typing import Annotated

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.typed import Rules, about, example, read
from oplogd.errors import ConsumerError, FilterError
from oplogd.model.consumer import ConsumerSettings, NamedConsumer, ShardPosition
from oplogd.model.isolation import isolation_of
from oplogd.model.lease import MAX_TERM
from oplogd.model.names import TopicName, check_name
from oplogd.model.operation import format_ms
from oplogd.model.shard import MAX_SHARDS
from oplogd.model.transaction import DEFAULT_ISOLATION
from oplogd.stream.ring.filters import parse_filter
from oplogd.topics.consumers.lags import ShardLag
from oplogd.topics.consumers.positions import COPY, NOW

_MAX_ID = 40
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")

_Start = Annotated[
    str,
    about(
        "`now`: with the next entry. `copy`: with a replication, or with the oldest message. Or a"
        " position: an id, or a time in ms since 1970.",
        "copy",
        max_length=_MAX_ID,
    ),
]


class ConsumerBody(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of a consumer. They never change."""

    log: Annotated[str, about("`system/oplog`, or a topic.", "shop/orders", max_length=499)]
    types: Annotated[list[str] | None, about("Only these types. Only of `system/oplog`.")] = None
    parents: Annotated[
        list[str] | None, about("Only objects with one of these parents. Only of `system/oplog`.")
    ] = None
    isolation: Annotated[
        str | None,
        about("Of a topic: `read_committed` (default) or `read_uncommitted`.", "read_committed"),
    ] = None
    start: _Start = NOW
    shards: Annotated[
        int, about("Parts of the log with a position of their own.", 8, ge=1, le=MAX_SHARDS)
    ] = 1


class SeekBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a seek."""

    position: _Start
    shard: Annotated[int, about("Only this shard.", 3, ge=0, lt=MAX_SHARDS)] | None = None


class AcknowledgementBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an acknowledgement."""

    term: Annotated[int, about("The header `Oplog-Term` of the stream.", 7, ge=1, le=MAX_TERM)]
    id: Annotated[
        str,
        about(
            "An id of the stream, also of a checkpoint: everything up to there is handled.",
            "545b55c7002900000000002a",
            min_length=1,
            max_length=_MAX_ID,
        ),
    ]
    shard: Annotated[int, about("Default: 0.", 3, ge=0, lt=MAX_SHARDS)] = 0


class ShardShown(msgspec.Struct):
    """The position of one shard."""

    shard: Annotated[int, example(3)]
    position: Annotated[
        str, about("Everything up to there is acknowledged.", "545b55c7002900000000002a")
    ]
    term: Annotated[int, about("Rises with each reader.", 7)]
    reader: Annotated[str, about("The last reader's address.", "10.0.0.5:51234")]
    acknowledged: Annotated[
        str | None,
        about("Time of the last one. null: there was none.", "2014-11-06T11:04:39.041Z"),
    ]
    lag: Annotated[int, about("Entries of the shard behind the position.", 12)]
    lag_seconds: Annotated[float, about("Age of the oldest of them.", 1.5)]
    estimated: Annotated[
        bool, about("The lag is the share of one shard in all entries behind the position.", False)
    ]
    left_seconds: Annotated[
        float | None,
        about("Time until the oldest of them leaves the log. null: none leaves soon.", 604_800.0),
    ]


class ConsumerListed(msgspec.Struct):
    """A named consumer in a list."""

    name: Annotated[str, example("search")]
    log: Annotated[str, example("shop/orders")]
    types: Annotated[list[str], example(["video"])]
    parents: list[str]
    isolation: Annotated[str, example("read_committed")]
    created: Annotated[str, example("2014-11-06T11:04:39.041Z")]


class ConsumerShown(ConsumerListed):
    """A named consumer."""

    shards: list[ShardShown]


_START = f"must be {NOW}, {COPY}, an id, or a time in ms since 1970"
_SHARDS = f"must be a whole number from 1 to {MAX_SHARDS}"
_LIST = "must be a list of strings, or null"
_RULES = Rules(
    {
        "log": "must be system/oplog, or NAMESPACE/TOPIC",
        "types": _LIST,
        "parents": _LIST,
        "isolation": "must be read_committed or read_uncommitted",
        "start": _START,
        "position": _START,
        "shards": _SHARDS,
        "shard": f"must be a whole number from 0 to {MAX_SHARDS - 1}",
        "term": "must be a whole number, at least 1",
        "id": f"must be a string of 1 to {_MAX_ID} characters",
    },
    required=("log", "start", "shards", "position", "term", "id", "shard"),
)

_decode_settings: Callable[[Text], ConsumerBody] = msgspec.json.Decoder(ConsumerBody).decode
_decode_seek: Callable[[Text], SeekBody] = msgspec.json.Decoder(SeekBody).decode
_decode_acknowledgement: Callable[[Text], AcknowledgementBody] = msgspec.json.Decoder(
    AcknowledgementBody
).decode


def consumer_name(name: str) -> str:
    """Return the name of a consumer. Raises ConsumerError."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise ConsumerError(
            "name", "must be 1 to 100 ASCII letters, digits, '.', '_' or '-', and not '.' or '..'"
        )
    return name


def parse_body(raw: Buffer) -> ConsumerBody:
    """Read the body of a PUT. Raises MessageError."""
    return read(_decode_settings, raw.strip() or b"{}", "body", _RULES)


def parse_seek(raw: Buffer) -> SeekBody:
    """Read the body of a seek. Raises MessageError."""
    return read(_decode_seek, raw.strip() or b"{}", "body", _RULES)


def parse_acknowledgement(raw: Buffer) -> AcknowledgementBody:
    """Read the body of an acknowledgement. Raises MessageError."""
    return read(_decode_acknowledgement, raw.strip() or b"{}", "body", _RULES)


def settings_of(given: ConsumerBody, max_filter_values: int) -> ConsumerSettings:
    """Return the settings in a body. Raises ConsumerError, TopicError and FilterError."""
    log = log_of(given.log)
    settings = ConsumerSettings(log, shards=given.shards)
    if settings.is_of_oplog:
        if given.isolation is not None:
            raise ConsumerError("isolation", "is only for topics")
        # A list of one value is this value, whatever its commas.
        types, parents = given.types or [], given.parents or []
        for name, values in (("types", types), ("parents", parents)):
            if "" in values:  # alone, it would pass everything
                raise FilterError(name, "a value is empty")
        if any("," in each for each in types):
            raise FilterError("types", "a type has no comma")
        found = parse_filter(types, [*parents, ""] if parents else [], max_filter_values)
        return settings._replace(types=found.types, parents=found.parents)
    for name in ("types", "parents"):
        if getattr(given, name):
            raise ConsumerError(name, "are only for system/oplog")
    isolation = DEFAULT_ISOLATION if given.isolation is None else isolation_of(given.isolation)
    return settings._replace(isolation=isolation)


def log_of(given: str) -> TopicName:
    """Return the log with a name. Raises ConsumerError and TopicError."""
    namespace, slash, topic = given.partition("/")
    if not slash:
        raise ConsumerError("log", "must be system/oplog, or NAMESPACE/TOPIC")
    return TopicName(check_name(namespace, "log"), check_name(topic, "log"))


def require_shard(settings: ConsumerSettings, number: int) -> None:
    """Raise ConsumerError unless the consumer has a shard of this number."""
    if number >= settings.shards:
        raise ConsumerError("shard", f"must be 0 to {settings.shards - 1}")


def listed(consumer: NamedConsumer) -> ConsumerListed:
    """Return a consumer for a list."""
    log, types, parents, isolation, _ = consumer.settings
    created = format_ms(consumer.created_ms)
    return ConsumerListed(
        consumer.name, str(log), sorted(types), sorted(parents), isolation, created
    )


def shown_shard(number: int, shard: ShardPosition, lag: ShardLag) -> ShardShown:
    """Return a shard for an answer."""
    at = format_ms(shard.acknowledged_ms) if shard.acknowledged_ms else None
    left = None if lag.left_seconds is None else round(lag.left_seconds, 1)
    return ShardShown(
        number,
        shard.position,
        shard.term,
        shard.reader,
        at,
        lag.entries,
        round(lag.seconds, 3),
        lag.estimated,
        left,
    )
