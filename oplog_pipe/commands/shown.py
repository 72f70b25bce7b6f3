"""How commands show tables, times and offsets to people."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from oplogc.http.answers import printable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table(head: Sequence[str], rows: Sequence[Sequence[object]], right: str = "") -> list[str]:
    """Return aligned lines. ``right``: names of the columns of numbers, with blanks between."""
    shown = [list(head), *([printable(str(each)) for each in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    aligned = [
        [
            cell.rjust(width) if name in right.split() else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        ]
        for row in shown
    ]
    return ["  ".join(row).rstrip() for row in aligned]


def utc(ms: int) -> str:
    """Return a time in ms since 1970 as ISO 8601; as a number if no calendar has it."""
    try:
        time = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
