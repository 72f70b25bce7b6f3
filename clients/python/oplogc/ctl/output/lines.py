"""Topics, messages and entries as lines, for people and in JSON. No I/O."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from oplogc.ctl.options.values import shown_duration
from oplogc.http.answers import printable
from oplogc.terminal.output import as_time
from oplogc.topics import (
    Entry,
    Lease,
    ListedPointer,
    Namespace,
    OpenPointer,
    ReceivedMessage,
    Reset,
    Topic,
    TopicEvent,
    TransactionStatus,
)
from oplogc.topics.messages.message import as_json

Row = tuple[object, ...]
_NO_TIME = " " * len("2026-01-31T12:00:00.000Z")


def topic_line(topic: Topic) -> str:
    seconds = {"ttl": topic.ttl, "pointer_timeout": topic.pointer_timeout}
    durations = {name: shown_duration(given) for name, given in seconds.items() if given}
    shown = {**topic.properties, **durations}
    properties = " ".join(f"{name}={text}" for name, text in shown.items())
    return printable(f"{topic.name} {properties}".rstrip())


def topic_json(topic: Topic) -> str:
    namespace, name = topic.name
    return json.dumps({"namespace": namespace, "name": name, "properties": dict(topic.properties)})


def event_line(event: TopicEvent) -> str:
    """Return time, payload, key, headers and id. Bytes outside UTF-8 are escaped."""
    if isinstance(event, Reset):
        return f"{_NO_TIME} reset"
    parts = [_time(event), _payload(event)]
    if event.key is not None:
        parts.append(printable(f"key={event.key}"))
    parts += [printable(f"{name}={value}") for name, value in event.headers]
    return " ".join([*parts, f"[{event.id}]"])


def event_json(event: TopicEvent) -> str:
    if isinstance(event, Reset):
        return json.dumps({"event": "reset"})
    shown = as_json(event)
    return json.dumps({"id": shown.pop("id"), "published": _time(event), **shown})


_OF_TXN = "state reason group topic lease begun_at expires_at records bytes topics begin commit"


def transaction_line(txn: TransactionStatus) -> str:
    """Return id, state, and the other members."""
    shown = _members(txn) | {"topics": ",".join(txn.topics) or "-"}
    head = [shown.pop("txn"), shown.pop("state")]
    if reason := shown.pop("reason", None):
        head.append(f"({reason})")
    return printable(" ".join([*head, *(f"{name}={_cell(each)}" for name, each in shown.items())]))


def transaction_json(txn: TransactionStatus) -> str:
    return _dumps(_members(txn))


def entry_lines(entries: Sequence[Entry]) -> list[str]:
    """Return a table with its titles, empty if there are no entries."""
    titles = ("OFFSET", "TIME", "KIND", "POINTER/TXN", "STATE", "RECORDS", "BYTES")
    return table(titles, map(_row, entries))


def namespace_lines(namespaces: Sequence[Namespace]) -> list[str]:
    return table(("NAMESPACE", "TOPICS"), namespaces)


def lease_lines(leases: Sequence[Lease]) -> list[str]:
    """Return a table with its titles. A free lease has no time left."""

    def cells(each: Lease) -> Row:
        left = f"{each.expires_in_ms / 1000:.1f}s" if each.expires_in_ms else None
        return each.name, each.holder, each.term, left, each.note or None

    return table(("LEASE", "HOLDER", "TERM", "LEFT", "NOTE"), map(cells, leases))


def row_json(row: Lease | Namespace) -> str:
    return _dumps(row._asdict())


def listed_pointer_lines(pointers: Sequence[ListedPointer]) -> list[str]:
    """Return a table with its titles, empty if there are no pointers."""
    titles = ("TOPIC", "POINTER", "STATE", "HOLDS", "BEGUN", "EXPIRES")
    return table(titles, (each[:-1] for each in pointers))


def listed_pointer_json(pointer: ListedPointer) -> str:
    """Return a pointer as the agent shows it."""
    shown = pointer._asdict() | {"pointer": str(pointer.pointer)}
    return _dumps({**shown.pop("topic")._asdict(), **shown})


def table(titles: tuple[str, ...], cells: Iterable[Row]) -> list[str]:
    """Return the lines of a table, none if it has no rows."""
    rows = [tuple(printable(_cell(each)) for each in row) for row in (titles, *cells)]
    if len(rows) == 1:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(map(str.ljust, row, widths)).rstrip()  # a cell has no blank around it
        for row in rows
    ]


def entry_json(entry: Entry) -> str:
    """Return an entry as the agent shows it."""
    shown = {name: value for name, value in entry._asdict().items() if value is not None}
    if entry.pointer is not None:
        shown["pointer"] = str(entry.pointer)
    return _dumps(shown)


def pointer_line(pointer: OpenPointer) -> str:
    state = "published" if pointer.published else "stored"
    times = f"begun_at={as_time(pointer.begun_at)} expires_at={as_time(pointer.expires_at)}"
    return f"{pointer.pointer} {state} {times}"


def pointer_json(pointer: OpenPointer) -> str:
    """Return an open pointer as the agent shows it."""
    return _dumps(pointer._asdict() | {"pointer": str(pointer.pointer)})


def _row(entry: Entry) -> Row:
    number = entry.voided if entry.records is None else entry.records
    by = entry.txn if entry.pointer is None else entry.pointer
    return entry.offset, entry.time, entry.kind, by, entry.state, number, entry.bytes


def _members(txn: TransactionStatus) -> dict[str, Any]:
    """Return a transaction as the agent shows it."""
    shown = {"txn": txn.id, **{name: getattr(txn, name) for name in _OF_TXN.split()}}
    return {name: value for name, value in shown.items() if value is not None}


def _cell(value: object) -> str:
    """Return a value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return as_time(value)
    return "-" if value is None else str(value)


def _dumps(members: dict[str, Any]) -> str:
    return json.dumps(members, default=as_time)


def _payload(message: ReceivedMessage) -> str:
    if message.payload is None:
        return "(none)"
    if isinstance(message.payload, bytes):
        return printable(message.payload.decode("utf-8", "backslashreplace"))
    return printable(message.payload)


def _time(message: ReceivedMessage) -> str:
    try:
        return as_time(message.published)
    except OverflowError:  # no agent sends it
        return as_time(datetime.max.replace(tzinfo=UTC))
