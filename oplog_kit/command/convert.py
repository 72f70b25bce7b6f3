"""Conversions from the text of a flag or variable to a value.

They raise ValueError. Its message continues a sentence that begins with the name of the flag or
variable.
"""

import re
from collections.abc import Callable

from oplog_kit import units
from oplog_kit.disk import read_text, without_newline


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


def count(least: int, most: int = 10**18 - 1) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text.strip()) or not least <= int(text) <= most:
            raise ValueError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return convert


def size(least: int) -> Callable[[str], int]:
    return lambda text: units.size(text, least)


def size_or_0(least: int) -> Callable[[str], int]:
    sized = size(least)
    return lambda text: 0 if text.strip() == "0" else sized(text)


def duration(
    wanted: str, fits: Callable[[float], bool] = lambda seconds: True
) -> Callable[[str], float]:
    return lambda text: units.duration(text, f" {wanted}", fits)


some_time = duration("of more than 0 and at most 36500d", lambda seconds: seconds > 0)
time_or_0 = duration("of at most 36500d")


def switch(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"{text!r} is neither true (1, true, yes, on) nor false (0, false, no, off)")


def in_file(convert: Callable[[str], Secret]) -> Callable[[str], Secret]:
    """Return a conversion from a path to the secret in that file.

    One newline at the end of the file is ignored.
    """

    def read(path: str) -> Secret:
        if not path:
            raise ValueError("the path is empty")
        text = without_newline(read_text(path))
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


class OneOf:
    """A conversion that accepts only the values in `choices`."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, text: str) -> str:
        if text not in self.choices:
            raise ValueError(f"{text!r} is not one of {', '.join(self.choices)}")
        return text


log_collection = OneOf("capped", "plain")
