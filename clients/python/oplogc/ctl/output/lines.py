"""Topics, messages and entries as lines, for people and in JSON. No I/O."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

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

_NO_TIME = " " * len("2026-01-31T12:00:00.000Z")


def topic_line(topic: Topic) -> str:
    seconds = {"ttl": topic.ttl, "pointer_timeout": topic.pointer_timeout}
    durations = {name: shown_duration(given) for name, given in seconds.items() if given}
    shown = {**topic.properties, **durations}
    properties = " ".join(f"{name}={text}" for name, text in shown.items())
    return printable(f"{topic.name} {properties}".rstrip())


def topic_json(topic: Topic) -> str:
    return json.dumps(
        {
            "namespace": topic.name.namespace,
            "name": topic.name.topic,
            "properties": dict(topic.properties),
        }
    )


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


def transaction_line(txn: TransactionStatus) -> str:
    """Return id, state, and the other members."""
    shown = _members(txn)
    shown["topics"] = ",".join(txn.topics) or "-"
    head = [str(shown.pop("txn")), str(shown.pop("state"))]
    if reason := shown.pop("reason", None):
        head.append(f"({reason})")
    return printable(" ".join([*head, *(f"{name}={value}" for name, value in shown.items())]))


def transaction_json(txn: TransactionStatus) -> str:
    return json.dumps(_members(txn))


_TITLES = ("OFFSET", "TIME", "KIND", "POINTER/TXN", "STATE", "RECORDS", "BYTES")


def entry_lines(entries: Sequence[Entry]) -> list[str]:
    """Return a table with its titles, empty if there are no entries."""
    return table(_TITLES, map(_row, entries))


def namespace_lines(namespaces: Sequence[Namespace]) -> list[str]:
    return table(("NAMESPACE", "TOPICS"), ((name, str(count)) for name, count in namespaces))


def lease_lines(leases: Sequence[Lease]) -> list[str]:
    """Return a table with its titles. A free lease has no time left."""
    return table(
        ("LEASE", "HOLDER", "TERM", "LEFT", "NOTE"),
        (
            (
                each.name,
                each.holder or "-",
                str(each.term),
                f"{each.expires_in_ms / 1000:.1f}s" if each.expires_in_ms else "-",
                each.note or "-",
            )
            for each in leases
        ),
    )


def row_json(row: Lease | Namespace) -> str:
    return json.dumps(row._asdict())


def listed_pointer_lines(pointers: Sequence[ListedPointer]) -> list[str]:
    """Return a table with its titles, empty if there are no pointers."""
    return table(
        ("TOPIC", "POINTER", "STATE", "HOLDS", "BEGUN", "EXPIRES"),
        (
            (
                str(each.topic),
                str(each.pointer),
                each.state,
                "yes" if each.holds else "no",
                as_time(each.begun_at),
                "-" if each.expires_at is None else as_time(each.expires_at),
            )
            for each in pointers
        ),
    )


def listed_pointer_json(pointer: ListedPointer) -> str:
    """Return a pointer as the agent shows it."""
    shown = {
        **pointer.topic._asdict(),
        "pointer": str(pointer.pointer),
        "state": pointer.state,
        "holds": pointer.holds,
        "begun_at": as_time(pointer.begun_at),
        "expires_at": None if pointer.expires_at is None else as_time(pointer.expires_at),
        "published": pointer.published,
    }
    return json.dumps(shown)


def table(titles: tuple[str, ...], cells: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table, none if it has no rows."""
    rows = [tuple(map(printable, row)) for row in (titles, *cells)]
    if len(rows) == 1:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(map(str.ljust, row, widths)).rstrip()  # a cell has no blank around it
        for row in rows
    ]


def entry_json(entry: Entry) -> str:
    """Return an entry as the agent shows it."""
    shown = entry._asdict() | {"time": as_time(entry.time)}
    if entry.pointer is not None:
        shown["pointer"] = str(entry.pointer)
    return json.dumps({name: value for name, value in shown.items() if value is not None})


def pointer_line(pointer: OpenPointer) -> str:
    state = "published" if pointer.published else "stored"
    times = f"begun_at={as_time(pointer.begun_at)} expires_at={as_time(pointer.expires_at)}"
    return f"{pointer.pointer} {state} {times}"


def pointer_json(pointer: OpenPointer) -> str:
    """Return an open pointer as the agent shows it."""
    return json.dumps(
        {
            "pointer": str(pointer.pointer),
            "begun_at": as_time(pointer.begun_at),
            "expires_at": as_time(pointer.expires_at),
            "published": pointer.published,
        }
    )


def _row(entry: Entry) -> tuple[str, ...]:
    number = entry.voided if entry.records is None else entry.records
    cells = (entry.txn if entry.pointer is None else entry.pointer, entry.state, number)
    shown = ("-" if cell is None else str(cell) for cell in cells)
    return (str(entry.offset), as_time(entry.time), entry.kind, *shown, str(entry.bytes))


def _members(txn: TransactionStatus) -> dict[str, object]:
    """Return a transaction as the agent shows it."""
    shown = {
        "txn": txn.id,
        "state": txn.state,
        "reason": txn.reason,
        "group": txn.group,
        "topic": txn.topic,
        "lease": txn.lease,
        "begun_at": as_time(txn.begun_at),
        "expires_at": as_time(txn.expires_at),
        "records": txn.records,
        "bytes": txn.bytes,
        "topics": list(txn.topics),
        "begin": txn.begin,
        "commit": txn.commit,
    }
    return {name: value for name, value in shown.items() if value is not None}


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
