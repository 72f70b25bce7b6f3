"""The members of ``/status`` as lines for people. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oplogc.ctl.output import table
from oplogc.http.answers import printable


def status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the main figures. Missing members are left out."""
    for name, parts in _rows(status).items():
        shown = ", ".join(text for text in parts if text)
        if shown:
            yield printable(f"{name:<11} {shown}")


def consumer_lines(consumers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table with its titles, empty without consumers."""
    titles = ("NAME", "ADDRESS", "FOLLOWS", "PHASE", "LAG", "SENT")
    return table(titles, map(_cells, consumers))


def _rows(status: Mapping[str, Any]) -> dict[str, list[str]]:
    store, topics = status.get("store", {}), status.get("topics", {})
    lag = status.get("consumer_lag", {})
    size, most = status.get("queue_size"), status.get("queue_max_size")
    return {
        "status": [str(status["status"]), str(status.get("reason", ""))],
        "version": [str(status.get("version", "")), _age(status.get("uptime_seconds"))],
        "store": [
            str(store.get("kind", "")),
            _count(store, "ops", "operation"),
            _count(store, "live", "object"),
            _count(store, "deleted", "deleted", plural="deleted"),
        ],
        "received": [
            _count(status, "events_received", "operation"),
            *(
                _count(status, f"events_{name}", word, plural=word, unless=0)
                for name, word in (
                    ("ingested", "stored"),
                    ("error", "invalid"),
                    ("discarded", "discarded"),
                    ("dropped_kernel", "dropped by the kernel"),
                    ("stale", "stale"),
                    ("with_ignored_members", "with ignored members"),
                )
            ),
        ],
        "queue": [
            f"{size:,} of {most:,} operations" if size is not None and most is not None else ""
        ],
        "consumers": [
            _count(status, "clients", "connected", plural="connected"),
            _count(lag, "operations", "operation", before="largest lag "),
            f"{lag['seconds']:.1f} s" if "seconds" in lag else "",
        ],
        "topics": [
            _count(topics, "count", "topic"),
            _count(topics, "messages_published", "message", before="published here: "),
        ],
        "warnings": [str(each) for each in store.get("warnings", ())],
    }


def _count(
    of: Mapping[str, Any],
    name: str,
    word: str,
    *,
    plural: str = "",
    before: str = "",
    unless: int | None = None,
) -> str:
    count = of.get(name)
    if not isinstance(count, int) or count == unless:
        return ""
    return f"{before}{count:,} {word if count == 1 else plural or f'{word}s'}"


def _age(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))
    shown = [f"{count}{unit}" for count, unit in units if count]
    return f"up {''.join(shown[:2]) or '0s'}"


def _cells(consumer: Mapping[str, Any]) -> tuple[str, ...]:
    filter_, lag = consumer.get("filter", {}), consumer.get("lag", {})
    values = [*filter_.get("types", ()), *filter_.get("parents", ())]
    if left := filter_.get("left_out"):
        values.append(f"{left:,} more")
    followed = str(consumer.get("topic") or "operations")
    held_by, operations = consumer.get("held_by"), lag.get("operations", 0)
    return (
        str(consumer.get("name") or "-"),
        str(consumer.get("address", "-")),
        f"{followed} ({', '.join(map(str, values))})" if values else followed,
        f"held by pointer {held_by}" if held_by else str(consumer.get("phase", "-")),
        f"{operations:,} ({lag.get('seconds', 0):.1f} s)" if operations else "0",
        f"{consumer.get('sent', 0):,}",
    )
