"""Values of the command line. No I/O."""

import re
from datetime import UTC, datetime, timedelta

from oplogc.terminal.times import from_ms
from oplogc.topics.calls.call import MAX_LIST
from oplogc.topics.calls.pointers import MAX_OFFSET
from oplogc.topics.calls.topics import MAX_POINTER_TIMEOUT
from oplogc.topics.calls.transactions import STATES
from oplogc.topics.messages.message import MAX_TTL_SECONDS, MIN_MAX_BYTES, Message, encode
from oplogc.wire.errors import MessageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{24}", re.ASCII)


def duration(text: str) -> int:
    """Return the seconds of a duration such as 90s, 10m, 12h, 7d or 3600. Raise ValueError."""
    match = re.fullmatch(r"([0-9]{1,10})([smhd]?)", text.strip(), re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 90s, 10m, 12h or 7d")
    return int(match[1]) * _SECONDS[match[2] or "s"]


def ttl(text: str) -> int:
    """Return a time to live in seconds. Raise ValueError."""
    seconds = duration(text)
    if not 1 <= seconds <= MAX_TTL_SECONDS:
        raise ValueError(f"{text!r} is not between 1s and 36500d")
    return seconds


def new_ttl(text: str) -> int:
    """Return a time to live in seconds, 0 for ``default``. Raise ValueError."""
    return 0 if text == "default" else ttl(text)


def pointer_timeout(text: str) -> int:
    """Return the time-out of a pointer in seconds. Raise ValueError."""
    seconds = duration(text)
    if not 1 <= seconds <= MAX_POINTER_TIMEOUT:
        raise ValueError(f"{text!r} is not between 1s and 30d")
    return seconds


def new_pointer_timeout(text: str) -> int:
    """Return the time-out of a pointer in seconds, 0 for ``default``. Raise ValueError."""
    return 0 if text == "default" else pointer_timeout(text)


def on_or_off(text: str) -> bool:
    """Raise ValueError."""
    if text not in ("on", "off"):
        raise ValueError(f"{text!r} is neither on nor off")
    return text == "on"


def max_bytes(text: str) -> int:
    """Return a bound in bytes. Raise ValueError."""
    match = re.fullmatch(r"([0-9]{1,18}) ?(?:([kmgt])(?:i?b)?|b)?", text.strip().lower(), re.ASCII)
    size = int(match[1]) << (10 * " kmgt".index(match[2] or " ")) if match else 0
    if not MIN_MAX_BYTES <= size < 1 << 63:
        raise ValueError(f"{text!r} is not a size of at least 1MB, such as 1000000000 or 500MB")
    return size


def new_max_bytes(text: str) -> int:
    """Return a bound in bytes, 0 for ``none``. Raise ValueError."""
    return 0 if text == "none" else max_bytes(text)


def position(text: str) -> str | datetime:
    """Return an id, or the time that a position means; "0" for the oldest. Raise ValueError."""
    text = text.strip()
    if text == "0" or _ID.fullmatch(text):
        return text
    if re.fullmatch(r"[0-9]{1,13}", text, re.ASCII):
        return from_ms(text)
    try:
        if re.fullmatch(r"[0-9]{1,10}[smhd]", text, re.ASCII):
            return datetime.now(UTC) - timedelta(seconds=duration(text))
        time = datetime.fromisoformat(text.upper())
        if time.tzinfo is not None:
            return time
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        f"{text!r} is neither an id, 0, a duration before now such as 10m, RFC 3339 such as "
        "2026-01-31T12:00:00Z, nor milliseconds"
    )


def count(text: str) -> int:
    """Return a whole number of at least 1. Raise ValueError."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10**12):
        raise ValueError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def offset(text: str) -> int:
    """Return the offset of an entry. Raise ValueError."""
    if re.fullmatch(r"[0-9]{1,13}", text, re.ASCII) and int(text) <= MAX_OFFSET:
        return int(text)
    raise ValueError(f"{text!r} is not an offset: give a whole number from 0 to {MAX_OFFSET}")


def limit(text: str) -> int:
    """Return the number of transactions, pointers or entries to list. Raise ValueError."""
    if count(text) > MAX_LIST:
        raise ValueError(f"{text!r} is more than {MAX_LIST:,}")
    return int(text)


def state(text: str) -> str:
    """Return the state of a transaction. Raise ValueError."""
    if text not in STATES:
        raise ValueError(f"{text!r} is not a state: give {', '.join(STATES[:-1])} or {STATES[-1]}")
    return text


def text(given: str) -> str:
    """Return a text that can be sent. Raise ValueError: bytes of the command line may be others."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{given!r} is not UTF-8") from None
    return given


def key(given: str) -> str:
    """Return the key of a message. Raise ValueError."""
    try:
        encode(Message(None, text(given)))
    except MessageError as error:
        raise ValueError(error.reason) from None
    return given


def header(given: str) -> tuple[str, str]:
    """Return the name and the value of NAME=VALUE. Raise ValueError."""
    name, equals, value = text(given).partition("=")
    if not equals or not name:
        raise ValueError(f"{given!r} is not NAME=VALUE")
    return name, value


def shown_duration(seconds: int) -> str:
    """Return seconds in the largest unit that divides them: 7d, 90s."""
    for unit in "dhm":
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds // _SECONDS[unit]}{unit}"
    return f"{seconds}s"
