"""Values on the command lines of this package. Conversions raise ValueError."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from oplogc.http.token import Bearer

DEFAULT_URL = "http://localhost:8042"
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
# March 1973. A smaller number is a year, a date or seconds. 0 and 1 are positions of an agent.
_LEAST_MS = 10**11
_DURATION = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,9})?) ?(ms|[smhdw])?", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,12}))? ?(?:([kmgt])(?:i?b)?|b)?", re.ASCII)


def duration(text: str) -> float:
    """Return the seconds of a duration such as 500ms, 90s, 10m, 12h, 7d, 2w or 3600."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 90s, 10m, 12h or 7d")
    return round(float(match[1]) * SECONDS[match[2] or "s"], 9)


def size(text: str, least: int, example: str) -> int:
    """Return the bytes of a size such as 1000000, 64KiB or 1.5GB. KB and KiB are 1,024 bytes.

    A part of a byte is dropped.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    found = -1
    if match is not None:
        whole, decimals, prefix = match.groups(default="")
        if prefix or not decimals:
            unit = 1 << 10 * " kmgt".index(prefix or " ")
            found = int(whole + decimals) * unit // 10 ** len(decimals)
    if not least <= found < 1 << 63:
        raise ValueError(f"{text!r} is not a size of at least {example}")
    return found


def check_ms(text: str) -> None:
    """Raise ValueError if these digits can hardly be milliseconds since 1970."""
    if 1 < int(text) < _LEAST_MS:
        raise ValueError(
            f"{text!r} is too small: milliseconds since 1970 have 12 or 13 digits; write a date as"
            " 2020-01-31T00:00:00Z"
        )


def moment(text: str) -> datetime | None:
    """Return the time of milliseconds since 1970, a duration before now, or RFC 3339, else None."""
    if re.fullmatch(r"[0-9]{1,13}", text, re.ASCII):
        check_ms(text)
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    try:
        return datetime.now(UTC) - timedelta(seconds=duration(text))
    except (ValueError, OverflowError):
        return zoned_time(text)


def zoned_time(text: str) -> datetime | None:
    """Return a time in RFC 3339 with a zone, else None."""
    try:
        time = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return None if time.tzinfo is None else time


def agent_url(text: str) -> str:
    """Return the URL of an agent. HOST:PORT gets the scheme http."""
    return f"http://{text}" if re.fullmatch(r"[^\s/@?#]+:[0-9]{1,5}(/\S*)?", text) else text


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10**12):
        raise ValueError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def one_of(kind: str, choices: tuple[str, ...]) -> Callable[[str], str]:
    """Return a conversion for a few words. ``kind``: such as ``a state``."""

    def convert(text: str) -> str:
        if text not in choices:
            listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise ValueError(f"{text!r} is not {kind}: give {listed}")
        return text

    return convert


def given_text(text: str) -> str:
    """Return a text, not an empty one."""
    if not text:
        raise ValueError("must not be empty")
    return text


def state_file_path(text: str) -> Path:
    """Return the path of a state file."""
    path = Path(given_text(text))
    if path.is_dir():
        raise ValueError(f"{text!r} is a folder; name a file")
    return path


def password_in_file(text: str) -> str:
    """Return the password in a file."""
    try:
        password = Path(given_text(text)).read_text().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(f"cannot read {text!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{text!r} is not UTF-8 text") from None
    if not password:
        raise ValueError(f"{text!r} is empty")
    return password


def token_in_file(text: str) -> Callable[[], str]:
    """Return a function that reads the token in a file. Raise ValueError if it fails now."""
    read = partial(password_in_file, text)
    Bearer(read())
    return read
