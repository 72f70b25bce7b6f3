"""Prints topics, messages and entries, for people and in JSON."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from oplogc.ctl.options.values import shown_duration
from oplogc.http.answers import printable
from oplogc.terminal.output import as_time, follow
from oplogc.topics import (
    ConsumerStatus,
    Entry,
    Lease,
    ListedConsumer,
    ListedPointer,
    Namespace,
    OpenPointer,
    ReceivedMessage,
    Reset,
    ShardStatus,
    Topic,
    TopicConsumer,
    TopicEvent,
    TransactionStatus,
)
from oplogc.topics.messages.message import as_json
from oplogc.topics.messages.names import OPLOG

Item = (
    Topic | TopicEvent | TransactionStatus | Entry | Lease | Namespace | OpenPointer | ListedPointer
    | ListedConsumer | ConsumerStatus | ShardStatus
)  # fmt: skip
Row = tuple[object, ...]
_NO_TIME = " " * len("2026-01-31T12:00:00.000Z")


def follow_topic(consumer: TopicConsumer, count: int | None, as_json: bool) -> None:
    """Print events until ``count`` messages, a signal, or the end of the reader."""
    asyncio.run(follow(consumer, lambda event: show([event], as_json), ReceivedMessage, count))


def show(items: Sequence[Item], as_json: bool) -> None:
    """Print each item in JSON as the agent shows it, or a table or lines for people."""
    if as_json:
        lines = [json.dumps(_members(each), default=as_time) for each in items]
    elif items and (shown := _TABLES.get(type(items[0]))):
        titles, cells = shown
        lines = table(titles.split(), map(cells, items))
    else:
        lines = list(map(_line, items))
    for line in lines:
        print(line)


def say(shown: dict[str, Any], sentence: str, as_json: bool) -> None:
    """Print what a command has done."""
    print(json.dumps(shown) if as_json else sentence)


def table(titles: Sequence[str], cells: Iterable[Row]) -> list[str]:
    """Return the lines of a table, none if it has no rows."""
    rows = [tuple(printable(_cell(each)) for each in row) for row in (titles, *cells)]
    if len(rows) == 1:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(map(str.ljust, row, widths)).rstrip()  # a cell has no blank around it
        for row in rows
    ]


def _line(item: Item) -> str:
    match item:
        case Reset():
            return f"{_NO_TIME} reset"
        case ReceivedMessage():
            return _message(item)
        case Topic():
            seconds = {"ttl": item.ttl, "pointer_timeout": item.pointer_timeout}
            durations = {name: shown_duration(given) for name, given in seconds.items() if given}
            return printable(f"{item.name} {_pairs({**item.properties, **durations})}".rstrip())
        case TransactionStatus():
            shown = _members(item) | {"topics": ",".join(item.topics) or "-"}
            head = f"{shown.pop('txn')} {shown.pop('state')}"
            if reason := shown.pop("reason", None):
                head += f" ({reason})"
            if item.owner is None:
                del shown["owner"]
            return printable(f"{head} {_pairs(shown)}")
        case ConsumerStatus():
            shown = dict(zip(_OF_CONSUMER.lower().split(), _consumer(item), strict=True))
            return printable(f"{shown.pop('consumer')} {_pairs(shown)}")
    shown = item._asdict()
    state = "published" if shown.pop("published") else "stored"
    return f"{shown.pop('pointer')} {state} {_pairs(shown)}"


def _message(message: ReceivedMessage) -> str:
    """Return time, payload, key, headers and id. Bytes outside UTF-8 are escaped."""
    payload = "(none)" if message.payload is None else message.payload
    if isinstance(payload, bytes):
        payload = payload.decode("utf-8", "backslashreplace")
    parts = [_time(message), printable(payload)]
    if message.key is not None:
        parts.append(printable(f"key={message.key}"))
    parts += [printable(f"{name}={value}") for name, value in message.headers]
    return " ".join([*parts, f"[{message.id}]"])


def _members(item: Item) -> dict[str, Any]:
    match item:
        case Reset():
            return {"event": "reset"}
        case ReceivedMessage():
            members = as_json(item)
            return {"id": members.pop("id"), "published": _time(item), **members}
        case Topic((namespace, name), properties):
            return {"namespace": namespace, "name": name, "properties": dict(properties)}
        case TransactionStatus():
            named = {"txn": item.id, **{name: getattr(item, name) for name in _OF_TXN.split()}}
            return {
                name: value for name, value in named.items() if value is not None or name == "owner"
            }
        case ConsumerStatus():
            return {**item._asdict(), "shards": [each._asdict() for each in item.shards]}
    shown = item._asdict()
    if shown.get("pointer") is not None:
        shown["pointer"] = str(shown["pointer"])
    if isinstance(item, Entry):
        return {name: value for name, value in shown.items() if value is not None}
    return {**shown.pop("topic")._asdict(), **shown} if isinstance(item, ListedPointer) else shown


_OF_TXN = (
    "state reason group topic lease owner begun_at expires_at records bytes topics begin commit"
)


def _entry(entry: Entry) -> Row:
    number = entry.voided if entry.records is None else entry.records
    by = entry.txn if entry.pointer is None else entry.pointer
    return entry.offset, entry.time, entry.kind, by, entry.state, number, entry.bytes


def _lease(each: Lease) -> Row:
    """Return the cells of a lease. A free one has no time left."""
    left = f"{each.expires_in_ms / 1000:.1f}s" if each.expires_in_ms else None
    return each.name, each.holder, each.term, left, each.note or None


_OF_CONSUMER = "CONSUMER LOG TYPES PARENTS ISOLATION CREATED"


def _consumer(each: ListedConsumer | ConsumerStatus) -> Row:
    types, parents = (",".join(names) or None for names in (each.types, each.parents))
    isolation = None if each.log == str(OPLOG) else each.isolation
    return each.name, each.log, types, parents, isolation, each.created


def _shard(each: ShardStatus) -> Row:
    """Return the cells of a shard. An estimated lag has a ~."""
    lag = f"{'~' * each.estimated}{each.lag:,} ({each.lag_seconds:.1f} s)" if each.lag else "0"
    if each.left_seconds is not None:
        lag += f", leaves in {each.left_seconds:.0f} s"
    return each.shard, each.position, each.term, each.reader or None, each.acknowledged, lag


_TABLES: dict[type, tuple[str, Callable[[Any], Row]]] = {
    Entry: ("OFFSET TIME KIND POINTER/TXN STATE RECORDS BYTES", _entry),
    Lease: ("LEASE HOLDER TERM LEFT NOTE", _lease),
    ListedConsumer: (_OF_CONSUMER, _consumer),
    ListedPointer: ("TOPIC POINTER STATE HOLDS BEGUN EXPIRES", lambda each: each[:-1]),
    Namespace: ("NAMESPACE TOPICS", tuple),
    ShardStatus: ("SHARD POSITION TERM READER ACKNOWLEDGED LAG", _shard),
}


def _pairs(members: dict[str, Any]) -> str:
    return " ".join(f"{name}={_cell(value)}" for name, value in members.items())


def _cell(value: object) -> str:
    """Return a value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return as_time(value)
    return "-" if value is None else str(value)


def _time(message: ReceivedMessage) -> str:
    try:
        return as_time(message.published)
    except OverflowError:  # no agent sends it
        return as_time(datetime.max.replace(tzinfo=UTC))
