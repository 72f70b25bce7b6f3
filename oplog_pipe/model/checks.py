"""The rules for single values. Each function raises ValueError with a sentence. No I/O."""

import re
import warnings

import httpx

from oplogc.http.address import base_endpoint
from oplogc.topics.messages.names import topic_name

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_TARGET = re.compile(rf"{_WORD}(\.{_WORD})*:{_WORD}(\.{_WORD})*", re.ASCII)
_SINK = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_SOURCE = re.compile(r"[A-Za-z0-9._/-]{1,64}", re.ASCII)
_PLACEHOLDER = re.compile(r"\{[^{}]*\}|[{}]")
_NAMES = re.compile(r"[\w/.-]+(?:\s*,\s*[\w/.-]+)+", re.ASCII)
_SERVER = r"(\[[^][@/]+\]|[^][:,/?@]+)(:[0-9]{1,5})?"
_MONGODB = re.compile(rf"mongodb(\+srv)?://(.*@)?{_SERVER}(,{_SERVER})*([/?].*)?")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII)


def sink_name(text: str) -> None:
    if not _SINK.fullmatch(text):
        raise ValueError(f"{text!r} must be 1 to 64 ASCII letters, digits, '.', '_' or '-'")


def source_name(text: str) -> None:
    if not _SOURCE.fullmatch(text):
        raise ValueError(f"{text!r} must be 1 to 64 ASCII letters, digits, '.', '_', '-' or '/'")


def log(text: str) -> str:
    """Return the name of a log with its namespace."""
    return str(topic_name(text))


def agent(text: str) -> None:
    base_endpoint(text, None)


def http_url(text: str) -> None:
    try:
        url = httpx.URL(text)
        if url.scheme in ("http", "https") and url.host and url.port != 0:
            return
    except (httpx.InvalidURL, ValueError):
        pass
    raise ValueError("must be an address such as http://localhost:9200 or https://host/path")


def host(text: str) -> None:
    if not _HOST.fullmatch(text):
        raise ValueError(
            f"{text!r} must be a host in lower case, such as api.example.com or localhost:8000"
        )


def target(text: str) -> None:
    """Check ``module:name``."""
    if text.partition(":")[0].endswith(".py"):
        raise ValueError(f"{text!r} must be module:name, without .py, such as shape:video")
    if not _TARGET.fullmatch(text):
        raise ValueError(f"{text!r} must be module:name, such as shape:video")


def template(text: str) -> None:
    for found in _PLACEHOLDER.findall(text):
        if found not in ("{namespace}", "{id}"):
            raise ValueError(f"{text!r} has {found!r}; use {{namespace}} and {{id}}")


def pattern(text: str) -> None:
    """Check a regular expression. A list of names would match nothing: no namespace has a comma."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a set such as [[a] works, but may not for ever
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "; .* matches everything" if text in ("*", "**") else ""
        raise ValueError(f"{text!r} is not a regular expression: {error}{hint}") from None
    if _NAMES.fullmatch(text):
        names = "|".join(re.split(r"\s*,\s*", text))
        raise ValueError(f"{text!r} matches nothing; of several names give ^({names})$")


def store(text: str) -> None:
    """Check the path of a SQLite file, or the URL of a database in MongoDB."""
    if "://" in text and not _MONGODB.fullmatch(text):
        raise ValueError("must be the path of a SQLite file, or mongodb://host/database")


def query(text: str) -> None:
    """Check that SQL only reads."""
    if not _QUERY.match(text):
        raise ValueError("must be a query: begin with SELECT, WITH or FROM")


_QUERY = re.compile(r"\s*(SELECT|WITH|FROM)\b(?!.*\bINSERT\s+(INTO|OVERWRITE)\b)", re.I | re.DOTALL)
_LITERAL = re.compile(r"(?:\^|\\A)(?:[^\\.^$*+?{}\[\]|()]|\\[^A-Za-z0-9])+(?:\$|\\Z)")


def is_literal(text: str) -> bool:
    """Return whether a regular expression matches one namespace only, as ``^video$`` does."""
    return _LITERAL.fullmatch(text) is not None
