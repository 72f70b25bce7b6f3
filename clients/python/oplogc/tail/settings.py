"""The settings of ``oplog-tail``: a frozen value, and its table of flags."""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from oplogc.http.address import check_consumer_name
from oplogc.terminal.values import (
    check_ms,
    count,
    given_text,
    moment,
    password_in_file,
    state_file_path,
    token_in_file,
    zoned_time,
)
from oplogc.wire.shard import check_shard

_COLOUR_CHOICES = ("auto", "always", "never")


def start_time(text: str) -> datetime:
    """Return the time of --since. Raise ValueError."""
    time = moment(text.strip())
    if time is None:
        raise ValueError(
            f"{text.strip()!r} is not a time: a duration such as 10m, RFC 3339 such as"
            " 2026-01-31T12:00:00Z, or milliseconds"
        )
    return time


def start_position(text: str) -> str | datetime:
    """Return the position of --from. Raise ValueError."""
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,13}", text):
        check_ms(text)
        return text
    if re.fullmatch(r"[0-9a-f]{24}", text):
        return text
    time = zoned_time(text)
    if time is None:
        raise ValueError(
            f"{text!r} is not an event id of 24 hexadecimal digits, 0, milliseconds, or RFC 3339"
            " such as 2026-01-31T12:00:00Z"
        )
    return time


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


@dataclass(frozen=True, slots=True)
class TailFlag:
    """One row of the table. ``metavar`` None: a switch."""

    subject: str
    name: str
    short: str | None
    metavar: str | None
    convert: Callable[[str], Any]
    help: str
    choices: tuple[str, ...] = ()
    repeats: bool = False
    empty_is_unset: bool = False

    @property
    def field(self) -> str:
        return self.name[2:].replace("-", "_")

    @property
    def variable(self) -> str:
        return f"OPLOG_TAIL_{self.field.upper()}"


FLAGS = (
    TailFlag(
        "Filter", "--types", "-t", "TYPE[,TYPE...]", given_text,
        "Show only operations of these types. When repeated, each value is one name and may hold a"
        " comma.",
        repeats=True,
    ),
    TailFlag(
        "Filter", "--parents", "-p", "PARENT[,PARENT...]", given_text,
        "Show only operations with one of these parents. Values are read like those of --types.",
        repeats=True,
    ),
    TailFlag(
        "Filter", "--ids", None, "ID[,ID...]", given_text,
        "Show only operations on objects with these ids. Values are read like those of --types.",
        repeats=True,
    ),
    TailFlag(
        "Filter", "--events", None, "EVENT[,EVENT...]", given_text,
        "Show only these events: insert, update, delete. In a replication a live object counts as"
        " an insert and an update.",
        repeats=True,
    ),
    TailFlag(
        "Filter", "--shard", None, "I/N", check_shard,
        "Show only operations of shard I of N, such as 3/8. All operations of an object are in the"
        " same shard. N is 256 at most.",
    ),
    TailFlag(
        "Start", "--from", None, "ID", start_position,
        "Start after this position. Excludes --since and --replicate.",
    ),
    TailFlag(
        "Start", "--since", None, "TIME", start_time,
        "Start with the objects that changed since this time, each once; then follow. Without"
        " --from, --since and --replicate, start with the next operation.",
    ),
    TailFlag(
        "Start", "--replicate", None, None, _switch,
        "Start with a replication of all objects: reset, an insert for each object, live. Then"
        " follow.",
    ),
    TailFlag(
        "Start", "--state-file", None, "PATH", state_file_path,
        "Keep the position in this file, and resume there next time. A position in the file"
        " overrides --from, --since and --replicate.",
    ),
    TailFlag(
        "Output", "--count", "-n", "N", count,
        "End after N operations. reset and live do not count.",
    ),
    TailFlag("Output", "--json", None, None, _switch, "Print one JSON object per line."),
    TailFlag(
        "Output", "--color", None, "auto|always|never", _colour,
        "Use colours. Default: auto, which means in a terminal, unless NO_COLOR is set.",
        choices=_COLOUR_CHOICES,
    ),
    TailFlag("Output", "--quiet", "-q", None, _switch, "Print no notices about connections."),
    TailFlag(
        "Connection", "--password", None, "PASSWORD", given_text,
        "Password of the agent. Other users see a password on the command line: prefer the variable"
        " or --password-file.",
        empty_is_unset=True,
    ),
    TailFlag(
        "Connection", "--password-file", None, "PATH", password_in_file,
        "Read --password from this file. One newline at its end is ignored. Excludes --password.",
    ),
    TailFlag(
        "Connection", "--token-file", None, "PATH", token_in_file,
        "Send the token in this file instead of a password. The file is read again at each"
        " connection. Excludes --password and --password-file.",
    ),
    TailFlag(
        "Connection", "--name", None, "NAME", check_consumer_name,
        "Name of this consumer in the agent's /status and /metrics: 1 to 100 ASCII letters, digits,"
        " '.', '_' or '-'.",
    ),
    TailFlag(
        "Connection", "--proxy", None, "URL", given_text,
        "HTTP proxy. Not set: the proxy of HTTP_PROXY or HTTPS_PROXY.",
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TailSettings:
    """The settings of one run."""

    url: str
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    shard: str | None = None
    start: str | datetime | None = None
    name: str | None = None
    state_file: Path | None = None
    count: int | None = None
    json: bool = False
    color: str = "auto"
    quiet: bool = False
    password: str | None = dataclasses.field(default=None, repr=False)
    token_file: Callable[[], str] | None = None
    """Reads the token."""
    proxy: str | None = None
