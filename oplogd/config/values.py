"""Conversions from the text of a flag or variable to a value.

They raise ValueError. Its message continues a sentence that begins with the name of the flag or
variable.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from oplog_kit.command.convert import OneOf, count, duration
from oplog_kit.listen import Address, listen_address

MAX_WORKERS = 64

_NAME = re.compile(
    r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*",
    re.ASCII,
)


def address(text: str) -> Address:
    return listen_address(text, 8042)


def udp_address(text: str) -> Address | Literal["off"]:
    if text.strip().lower() == "off":
        return "off"
    try:
        return address(text)
    except ValueError as error:
        raise ValueError(f"{error}, nor 'off'") from None


def workers(text: str) -> int:
    number = count(1)(text)
    if number > MAX_WORKERS:
        raise ValueError(f"{number:,} is more than {MAX_WORKERS}")
    if number > 1 and sys.platform != "linux":
        raise ValueError("only Linux shares a port among processes")
    return number


# SQLite's names of a database without a file.
_IN_MEMORY = (":memory:", "file::memory:")


lease = duration("of at least 100ms and at most 10m", lambda seconds: 0.1 <= seconds <= 600)
heartbeat = duration("of more than 0 and at most 25s", lambda seconds: 0 < seconds <= 25)


def _whole_seconds(days: int) -> Callable[[str], int]:
    timed = duration(
        f"of at least 1s and at most {days}d", lambda given: 1 <= given <= days * 86400
    )

    def convert(text: str) -> int:
        seconds = timed(text)
        if not seconds.is_integer():
            raise ValueError(f"{text!r} is not a whole number of seconds")
        return int(seconds)

    return convert


whole_seconds = _whole_seconds(36_500)
pointer_timeout = _whole_seconds(30)


def path(text: str) -> Path:
    if not text:
        raise ValueError("the path is empty")
    if text in _IN_MEMORY:
        raise ValueError(
            f"{text!r} is no file, and an agent keeps its data in one; for a trial, name a file in"
            " a temporary folder"
        )
    return Path(text)


def readable(text: str) -> Path:
    # Open it but read nothing: it may be a pipe, which can be read only once.
    try:
        with path(text).open("rb"):
            return Path(text)
    except OSError as error:
        raise ValueError(f"cannot read {text!r}: {error.strerror}") from None


def object_url(text: str) -> str:
    if "{{id}}" not in text:
        raise ValueError(f"{text!r} does not contain {{{{id}}}}")
    return text


def host_name(text: str) -> str | None:
    """Return a DNS name in lower case without a final dot, or None if `text` is no DNS name."""
    name = text.lower().removesuffix(".")
    return name if len(name) <= 253 and _NAME.fullmatch(name) else None


def audience(text: str) -> str:
    if not text.strip() or len(text) > 1_000:
        raise ValueError("must have 1 to 1,000 characters")
    return text


def host_names(text: str) -> frozenset[str]:
    names = frozenset(filter(None, map(str.strip, text.split(","))))
    for name in names:
        if host_name(name) is None:
            raise ValueError(
                f"{name!r} is not a host name such as oplog.example.com: no scheme, no port, no *"
            )
    return frozenset(name for name in map(host_name, names) if name)


log_format = OneOf("text", "json")
