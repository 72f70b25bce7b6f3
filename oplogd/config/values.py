"""Conversions from the text of a flag or variable to a value.

They raise ValueError. Its message continues a sentence that begins with the name of the flag or
variable.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from oplog_kit import units

_NAME = re.compile(
    r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*",
    re.ASCII,
)


class Secret:
    """A string that a repr, a log or a format string shows as `***`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. An empty host means all interfaces, port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def loopback(self) -> "Address":
        """Return the same port on the loopback interface of the same address family."""
        if self.is_loopback:
            return self
        return Address("::1" if ":" in self.host else "127.0.0.1", self.port)


def address(text: str) -> Address:
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^\s:/@\[\]]*)):([0-9]{1,5})", text.strip())
    if not match or int(match[3]) > 65535 or (match[1] and not _is_ipv6(match[1])):
        raise ValueError(f"{text!r} is not an address such as :8042, localhost:8042 or [::1]:8042")
    return Address(match[1] or match[2], int(match[3]))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def udp_address(text: str) -> Address | Literal["off"]:
    if text.strip().lower() == "off":
        return "off"
    try:
        return address(text)
    except ValueError as error:
        raise ValueError(f"{error}, nor 'off'") from None


def count(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < least:
            raise ValueError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return convert


def size(least: int) -> Callable[[str], int]:
    return lambda text: units.size(text, least)


def size_or_0(least: int) -> Callable[[str], int]:
    sized = size(least)
    return lambda text: 0 if text.strip() == "0" else sized(text)


# SQLite's names of a database that is in no file.
_IN_MEMORY = (":memory:", "file::memory:")


def _duration(
    wanted: str, fits: Callable[[float], bool] = lambda seconds: True
) -> Callable[[str], float]:
    return lambda text: units.duration(text, f" {wanted}", fits)


some_time = _duration("of more than 0 and at most 36500d", lambda seconds: seconds > 0)
time_or_0 = _duration("of at most 36500d")
lease = _duration("of at least 100ms and at most 10m", lambda seconds: 0.1 <= seconds <= 600)
heartbeat = _duration("of more than 0 and at most 25s", lambda seconds: 0 < seconds <= 25)


def _whole_seconds(days: int) -> Callable[[str], int]:
    duration = _duration(
        f"of at least 1s and at most {days}d", lambda given: 1 <= given <= days * 86400
    )

    def convert(text: str) -> int:
        seconds = duration(text)
        if not seconds.is_integer():
            raise ValueError(f"{text!r} is not a whole number of seconds")
        return int(seconds)

    return convert


whole_seconds = _whole_seconds(36_500)
pointer_timeout = _whole_seconds(30)


def switch(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"{text!r} is neither true (1, true, yes, on) nor false (0, false, no, off)")


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
    with _open(text):
        return Path(text)


def _open(text: str) -> BinaryIO:
    try:
        return path(text).open("rb")
    except OSError as error:
        raise ValueError(f"cannot read {text!r}: {error.strerror}") from None


def in_file(convert: Callable[[str], Secret]) -> Callable[[str], Secret]:
    """Return a conversion from a path to the secret in that file.

    One newline at the end of the file is ignored.
    """

    def read(path: str) -> Secret:
        with _open(path) as file:
            try:
                text = file.read().decode()
            except UnicodeDecodeError:
                raise ValueError(f"{path!r} is not UTF-8 text") from None
            except OSError as error:
                raise ValueError(f"cannot read {path!r}: {error.strerror}") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if not text:
            raise ValueError(f"{path!r} is empty")
        try:
            return convert(text)
        except ValueError as error:
            raise ValueError(f"{path!r}: {error}") from None

    return read


def mongo_url(text: str) -> Secret:
    # The URL may hold a password: no message may repeat it.
    if not text.startswith(("mongodb://", "mongodb+srv://")):
        raise ValueError("the URL must begin with mongodb:// or mongodb+srv://")
    return Secret(text)


def object_url(text: str) -> str:
    if "{{id}}" not in text:
        raise ValueError(f"{text!r} does not contain {{{{id}}}}")
    return text


def host_name(text: str) -> str | None:
    """Return a DNS name in lower case without a final dot, or None if `text` is no DNS name."""
    name = text.lower().removesuffix(".")
    return name if len(name) <= 253 and _NAME.fullmatch(name) else None


def host_names(text: str) -> frozenset[str]:
    names = frozenset(filter(None, map(str.strip, text.split(","))))
    for name in names:
        if host_name(name) is None:
            raise ValueError(
                f"{name!r} is not a host name such as oplog.example.com: no scheme, no port, no *"
            )
    return frozenset(name for name in map(host_name, names) if name)


class OneOf:
    """A conversion that accepts only the texts in `choices`."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, text: str) -> str:
        if text not in self.choices:
            raise ValueError(f"{text!r} is not one of {', '.join(self.choices)}")
        return text


log_collection = OneOf("capped", "plain")
log_format = OneOf("text", "json")
