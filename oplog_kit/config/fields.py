"""The definition of a setting: name, kind, range and meaning. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

import httpx
import yaml

from oplog_kit.units import duration_text, size_text
from oplog_kit.urls import hide_password, origin
from oplogc.http.address import shown as address_shown

HIDDEN = "***"


class Kind(Enum):
    TEXT = auto()
    # A text no message and no output may show.
    SECRET = auto()
    # A text, shown without its password.
    URL = auto()
    # The same, without path and query: those of a webhook are a secret.
    HOOK = auto()
    STRINGS = auto()
    # A list of strings, shown without their passwords.
    URLS = auto()
    COUNT = auto()
    DURATION = auto()
    # A list of two durations.
    DURATIONS = auto()
    SIZE = auto()
    FLAG = auto()
    CHOICE = auto()
    # A text without variables: a regular expression, a query.
    PATTERN = auto()
    # A path. A relative one begins at the root of the reader.
    FILE = auto()
    # A mapping of strings.
    TEXT_MAPPING = auto()
    # The same, with values no output may show.
    SECRET_MAPPING = auto()
    # A mapping of anything, with values no output may show.
    ANY_MAPPING = auto()
    # A mapping or a list with a table of its own.
    SECTION = auto()


SECRETS = (Kind.SECRET, Kind.URL, Kind.HOOK)
"""A setting of these kinds may be in a file: ``password_file``."""


class Field(NamedTuple):
    """- ``least``, ``most``: of a count, a duration in seconds, a size in bytes; both are allowed.
    - ``choices``: of a choice. ``check``: raises ValueError for an unusable text.
    - ``required``: how to give it, as the end of a sentence; empty: it has a default.
    - ``hints``: names of the setting in other programs.
    - ``variable``: environment variable, with precedence over the file; empty: none.
    """

    name: str
    kind: Kind
    meaning: str
    least: float = 0
    most: float = 0
    choices: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None
    required: str = ""
    hints: tuple[str, ...] = ()
    variable: str = ""


def tls_fields(owner: str) -> tuple[Field, Field, Field]:
    """Return the settings of TLS. ``owner``: of the certificate."""
    trusted = (
        "Certificates of the authorities to trust, in PEM. Without it: those of `SSL_CERT_FILE` or "
        "the usual ones."
    )
    key = "Private key of `cert_file`, in PEM, without a pass phrase. Without it: in `cert_file`."
    return (
        Field("ca_file", Kind.FILE, trusted),
        Field("cert_file", Kind.FILE, f"Certificate of {owner}, in PEM."),
        Field("key_file", Kind.FILE, key),
    )


def range_text(field: Field) -> str:
    """Return the range of a number, such as ``1 to 100``; empty for other kinds."""
    least, most = field.least, field.most
    match field.kind:
        case Kind.COUNT:
            return f"{least:,} to {most:,}"
        case Kind.DURATION | Kind.DURATIONS:
            return f"{duration_text(least)} to {duration_text(most)}"
        case Kind.SIZE:
            return f"{size_text(int(least))} to {size_text(int(most))}"
    return ""


def check_value(field: Field, value: Any) -> None:
    """Raise ValueError for a value out of its range or refused by ``field.check``."""
    for each in value if isinstance(value, tuple) else (value,):
        if field.most and not field.least <= each <= field.most:
            raise ValueError(f"must be {range_text(field)}")
        if field.choices and each not in field.choices:
            raise ValueError(f"{each!r} must be {' or '.join(field.choices)}")
        if field.check is not None:
            field.check(each)


def shown_text(document: Mapping[str, Any]) -> str:
    """Return shown values as YAML."""
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def shown_values(fields: Sequence[Field], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a section as the file may have them, without secrets."""
    return {
        field.name: shown_value(field, values[field.name])
        for field in fields
        if field.kind is not Kind.SECTION and field.name in values
    }


def shown_value(field: Field, value: Any) -> Any:
    """Return a value as the file may have it, without secrets."""
    if value is None or field.kind not in _SHOWN:
        return value
    return _SHOWN[field.kind](value)


def _url(url: str) -> str:
    return address_shown(httpx.URL(url)) if url.startswith("http") else hide_password(url, HIDDEN)


def _hidden(values: Mapping[str, Any]) -> dict[str, str]:
    return dict.fromkeys(values, HIDDEN)


_SHOWN: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.SECRET: lambda _: HIDDEN,
    Kind.URL: _url,
    Kind.HOOK: lambda url: origin(url, HIDDEN),
    Kind.STRINGS: list,
    Kind.URLS: lambda urls: [_url(each) for each in urls],
    Kind.DURATION: duration_text,
    Kind.DURATIONS: lambda pair: [duration_text(each) for each in pair],
    Kind.SIZE: size_text,
    Kind.FILE: str,
    Kind.TEXT_MAPPING: dict,
    Kind.SECRET_MAPPING: _hidden,
    Kind.ANY_MAPPING: _hidden,
}
