"""Times on a command line. No I/O."""

from datetime import UTC, datetime

# March 1973. A smaller number is a year, a date or seconds. 0 and 1 are positions of an agent.
_LEAST_MS = 10**11


def check_ms(text: str) -> None:
    """Raise ValueError if these digits can hardly be milliseconds since 1970."""
    if 1 < int(text) < _LEAST_MS:
        raise ValueError(
            f"{text!r} is too small: milliseconds since 1970 have 12 or 13 digits; write a date as"
            " 2020-01-31T00:00:00Z"
        )


def from_ms(text: str) -> datetime:
    """Return a time in milliseconds since 1970, of up to 13 digits. Raise ValueError."""
    check_ms(text)
    return datetime.fromtimestamp(int(text) / 1000, UTC)
