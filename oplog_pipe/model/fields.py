"""The definition of a setting: name, kind, range and meaning. Settings of several mappings.

No I/O.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from oplog_kit.units import duration_text, size_text
from oplog_pipe.model import checks


class Kind(Enum):
    TEXT = auto()
    # A text no message and no output may show.
    SECRET = auto()
    # A text, shown without its password.
    URL = auto()
    # The same, without path and query: those of a webhook are a secret.
    HOOK = auto()
    TEXTS = auto()
    # A list of strings, shown without their passwords.
    URLS = auto()
    COUNT = auto()
    DURATION = auto()
    SIZE = auto()
    FLAG = auto()
    CHOICE = auto()
    # A regular expression.
    PATTERN = auto()
    # A path; a relative one begins at the folder of the settings file.
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


class Field(NamedTuple):
    """- ``least``, ``most``: of a count, a duration in seconds, a size in bytes; both are allowed.
    - ``choices``: of a choice. ``check``: raises ValueError for an unusable text.
    - ``required``: how to give it, as the end of a sentence; empty: it has a default.
    - ``hints``: names of the setting in other programs.
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


def range_text(field: Field) -> str:
    """Return the range of a number, such as ``1 to 100``; empty for other kinds."""
    least, most = field.least, field.most
    match field.kind:
        case Kind.COUNT:
            return f"{least:,} to {most:,}"
        case Kind.DURATION:
            return f"{duration_text(least)} to {duration_text(most)}"
        case Kind.SIZE:
            return f"{size_text(int(least))} to {size_text(int(most))}"
    return ""


HOUR = 3600
TLS = (
    Field(
        "ca_file",
        Kind.FILE,
        "Certificates of the authorities to trust, in PEM. Without it: those of `SSL_CERT_FILE` or "
        "the usual ones.",
    ),
    Field("cert_file", Kind.FILE, "Certificate of the pipe, in PEM."),
    Field(
        "key_file",
        Kind.FILE,
        "Private key of `cert_file`, in PEM, without a pass phrase. Without it: in `cert_file`.",
    ),
)
USER = (
    Field("user", Kind.TEXT, "User for Basic authentication."),
    Field("password", Kind.SECRET, "Password of `user`."),
)
AGENTS = Field(
    "agents",
    Kind.URLS,
    "Addresses of agents on one store. If one is unreachable, the next one is asked.",
    check=checks.agent,
    required="give the addresses of agents, such as [http://localhost:8042]",
)
LOG = Field("log", Kind.TEXT, "`system/oplog`, or a topic as `namespace/topic`.", check=checks.log)


def timeout(meaning: str) -> Field:
    return Field("timeout", Kind.DURATION, meaning, 0.01, HOUR)


def template(name: str, meaning: str) -> Field:
    """Return a setting of text with ``{namespace}`` and ``{id}``."""
    return Field(name, Kind.TEXT, meaning, check=checks.template)


ID = template("id", "Id of the object there, with `{namespace}` and `{id}`.")._replace(
    hints=("key", "primary_key")
)
