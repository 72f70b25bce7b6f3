"""The settings of ``oplog-tail``: a frozen value, and the table of flags that it is read from."""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from oplogc.http.address import check_consumer_name
from oplogc.terminal.times import check_ms, from_ms

DEFAULT_URL = "http://localhost:8042"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def start_time(text: str) -> datetime:
    """Return the time that --since means. Raise ValueError if `text` is no time."""
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,13}", text):
        return from_ms(text)
    try:
        if match := re.fullmatch(r"([0-9]{1,9})([smhd])", text):
            return datetime.now(UTC) - timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
        time = datetime.fromisoformat(text.upper())
        if time.tzinfo is not None:
            return time
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        f"{text!r} is not a time: a duration such as 10m, RFC 3339 such as 2026-01-31T12:00:00Z, or"
        " milliseconds"
    )


def start_position(text: str) -> str | datetime:
    """Return the position that --from means. Raise ValueError if `text` is no position."""
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,13}", text):
        check_ms(text)
        return text
    if re.fullmatch(r"[0-9a-f]{24}", text):
        return text
    try:
        time = datetime.fromisoformat(text.upper())
    except ValueError:
        time = datetime.min
    if time.tzinfo is None:
        raise ValueError(
            f"{text!r} is not an event id of 24 hexadecimal digits, 0, milliseconds, or RFC 3339"
            " such as 2026-01-31T12:00:00Z"
        )
    return time


def agent_url(text: str) -> str:
    """Return the URL of an agent; HOST:PORT gets the scheme http."""
    return f"http://{text}" if re.fullmatch(r"[^\s/@?#]+:[0-9]{1,5}(/\S*)?", text) else text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ValueError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither true (1, true, yes, on) nor false (0, false, no, off)")


def _colour(text: str) -> str:
    if text not in _COLOUR_CHOICES:
        raise ValueError(f"{text!r} is not one of {', '.join(_COLOUR_CHOICES)}")
    return text


def state_file_path(text: str) -> Path:
    """Return the path of a state file. Raise ValueError."""
    path = Path(_text(text))
    if path.is_dir():
        raise ValueError(f"{text!r} is a folder; name a file")
    return path


def password_in_file(text: str) -> str:
    """Return the password in a file. Raise ValueError."""
    try:
        password = Path(_text(text)).read_text().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(f"cannot read {text!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{text!r} is not UTF-8 text") from None
    if not password:
        raise ValueError(f"{text!r} is empty")
    return password


_COLOUR_CHOICES = ("auto", "always", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One row of the table. ``metavar`` None: a switch."""

    name: str
    short: str | None
    metavar: str | None
    subject: str
    help: str
    convert: Callable[[str], Any]
    choices: tuple[str, ...] = ()
    repeats: bool = False
    empty_is_unset: bool = False

    @property
    def field(self) -> str:
        return self.name[2:].replace("-", "_")

    @property
    def variable(self) -> str:
        return f"OPLOG_TAIL_{self.field.upper()}"


def _row(
    subject: str,
    name: str,
    short: str | None,
    metavar: str | None,
    convert: Callable[[str], Any],
    help: str,
    **more: Any,
) -> Flag:
    return Flag(
        name=name, short=short, metavar=metavar, subject=subject, help=help, convert=convert, **more
    )


FLAGS = (
    _row(
        "Filter", "--types", "-t", "TYPE[,TYPE...]", _text,
        "Show only operations of these types. When repeated, each value is one name and may hold a"
        " comma.",
        repeats=True,
    ),
    _row(
        "Filter", "--parents", "-p", "PARENT[,PARENT...]", _text,
        "Show only operations with one of these parents. Values are read like those of --types.",
        repeats=True,
    ),
    _row(
        "Start", "--from", None, "ID", start_position,
        "Start after this position. Excludes --since and --replicate.",
    ),
    _row(
        "Start", "--since", None, "TIME", start_time,
        "Start with the objects that changed since this time, each once; then follow. Without"
        " --from, --since and --replicate, start with the next operation.",
    ),
    _row(
        "Start", "--replicate", None, None, _switch,
        "Start with a replication of all objects: reset, an insert for each object, live. Then"
        " follow.",
    ),
    _row(
        "Start", "--state-file", None, "PATH", state_file_path,
        "Keep the position in this file, and resume there next time. A position in the file"
        " overrides --from, --since and --replicate.",
    ),
    _row(
        "Output", "--count", "-n", "N", _count,
        "End after N operations. reset and live do not count.",
    ),
    _row("Output", "--json", None, None, _switch, "Print one JSON object per line."),
    _row(
        "Output", "--color", None, "auto|always|never", _colour,
        "Use colours. Default: auto, which means in a terminal, unless NO_COLOR is set.",
        choices=_COLOUR_CHOICES,
    ),
    _row("Output", "--quiet", "-q", None, _switch, "Print no notices about connections."),
    _row(
        "Connection", "--password", None, "PASSWORD", _text,
        "Password of the agent. Other users see a password on the command line: prefer the variable"
        " or --password-file.",
        empty_is_unset=True,
    ),
    _row(
        "Connection", "--password-file", None, "PATH", password_in_file,
        "Read --password from this file. One newline at its end is ignored. Excludes --password.",
    ),
    _row(
        "Connection", "--name", None, "NAME", check_consumer_name,
        "Name of this consumer in the agent's /status and /metrics: 1 to 100 ASCII letters, digits,"
        " '.', '_' or '-'.",
    ),
    _row(
        "Connection", "--proxy", None, "URL", _text,
        "HTTP proxy. Not set: the proxy of HTTP_PROXY or HTTPS_PROXY.",
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TailSettings:
    """The settings of one run."""

    url: str
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    start: str | datetime | None = None
    name: str | None = None
    state_file: Path | None = None
    count: int | None = None
    json: bool = False
    color: str = "auto"
    quiet: bool = False
    password: str | None = dataclasses.field(default=None, repr=False)
    proxy: str | None = None
