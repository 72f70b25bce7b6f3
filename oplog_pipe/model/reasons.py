"""Turns errors of targets and of user code into reasons without contents. No I/O.

Logs, ``/status`` and dead-letter files get these reasons. A server quotes the row it refuses,
and an exception the value it cannot read. So a reason is made of names and codes. The words of
a server are repeated only where they name nothing but tables, fields and servers.
"""

import re
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from oplog_kit.urls import origin
from oplog_pipe.errors import PipeError
from oplogc.http.answers import printable

_PACKAGE = str(Path(__file__).parent.parent)
_MAX = 500

of_url = origin


def of_code(error: BaseException) -> str:
    """Return the reason of an exception of user code: its type and its place in the code.

    The text of a PipeError is for people. It is returned unchanged.
    """
    if isinstance(error, PipeError):
        return str(error)
    name = type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [each for each in frames if not each.filename.startswith(_PACKAGE)]
    if foreign:
        # The last frame in the file the pipe has called. Deeper ones are of its libraries.
        place = [each for each in foreign if each.filename == foreign[0].filename][-1]
        return f"{name} in {Path(place.filename).name}, line {place.lineno}"
    # The call itself has failed, and names the function and its arguments.
    return f"{name}: {error}" if isinstance(error, TypeError) else name


def of_status(status: int) -> str:
    """Return the reason of an HTTP answer whose body may quote what was sent."""
    try:
        return f"{HTTPStatus(status).phrase} (HTTP {status})"
    except ValueError:
        return f"HTTP {status}"


# PostgreSQL

# Classes of SQLSTATE whose primary message names no values: connection, unsupported, constraint,
# transaction, user, database, conflict, name or right, resources, limits, state, operator, system.
_PLAIN = (
    "08", "0A", "23", "25", "26", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58",
)  # fmt: skip
# Of these the words before the first value. In English: invalid input syntax for type integer.
_QUOTING = "22"
# Servers speak many languages: also quotation marks of French, German and Japanese.
_QUOTES = re.compile("[\"'\u00ab\u00bb\u2018-\u201f\u2039\u203a\u300c\u300e]")


def of_sql(name: str, state: str, words: str, names: Mapping[str, str | None]) -> str:
    """Return the reason of an error of PostgreSQL.

    - ``name``: of the error. ``state``: its SQLSTATE. ``words``: its primary message.
    - ``names``: of table, column, data type and constraint. ``context``: where the server was.
    """
    # A function or a trigger raises errors in words of its own, with any SQLSTATE. In all languages
    # its context names PL/pgSQL, another PL/, or SQL.
    if not re.search("PL/|SQL", names.get("context") or ""):
        if state.startswith(_PLAIN):
            return _joined(words)
        if state.startswith(_QUOTING) and (plain := _QUOTES.split(words)[0].rstrip(" :")):
            return f"{_joined(plain)} ({name})"
    places = [
        f"{kind} {names[kind]!r}"
        for kind in ("table", "column", "constraint", "type")
        if names.get(kind)
    ]
    return f"{', '.join([f'{name} (SQLSTATE {state})', *places])}; the log of the server says more"


# Elasticsearch and OpenSearch

# Errors whose reason names indexes, users and limits, and never a document.
_OF_SERVER = frozenset(
    (
        "circuit_breaking_exception",
        "cluster_block_exception",
        "index_closed_exception",
        "index_not_found_exception",
        "invalid_index_name_exception",
        "master_not_discovered_exception",
        "resource_already_exists_exception",
        "security_exception",
    )
)
_NAME = r"\[[^\]]{1,200}\]"
# Beginnings of other reasons. A value comes behind them.
_BEGINNINGS = re.compile(
    r"(?:\[\d+:\d+\] )?("
    rf"failed to parse field {_NAME} of type {_NAME}"
    rf"|object mapping for {_NAME} tried to parse field {_NAME} as object"
    rf"|mapper {_NAME} cannot be changed from type {_NAME} to {_NAME}"
    rf"|mapping set to strict, dynamic introduction of {_NAME}"
    r"|Limit of (?:total fields|mapping depth) \[\d+\] has been exceeded"
    r'|Document contains at least one immense term in field="[^"]{1,200}"'
    r")"
)


def of_search(error: object) -> str:
    """Return the reason of an error of a search server, with the type of its first cause."""
    if not isinstance(error, dict):
        return "an error without a type"
    reason = _of_search(error)
    cause = error.get("caused_by")
    if isinstance(cause, dict) and cause.get("type"):
        reason += f"; {_of_search(cause)}"
    return _joined(reason)


def _of_search(error: Mapping[str, Any]) -> str:
    type_, words = str(error.get("type", "error")), str(error.get("reason") or "")
    if not re.fullmatch(r"\w{1,100}", type_):
        return "an error without a type"
    if words and type_ in _OF_SERVER:
        return f"{type_}: {words}"
    found = _BEGINNINGS.match(words)
    return f"{type_}: {found[1]}" if found else type_


# MongoDB

_DUPLICATE = re.compile(r".{0,40}?duplicate key error(?: collection: (\S+))?(?: index: (\S+))?")
_CODES = {
    2: "bad value",
    9: "failed to parse",
    13: "not authorized: look at user and password, and at the rights of the user",
    18: "authentication failed: look at user and password",
    112: "write conflict",
    121: "document failed validation",
    10334: "the document is too large",
    11000: "duplicate key",
}


def of_mongodb(code: int | None, words: str, name: str = "") -> str:
    """Return the reason of an error of MongoDB.

    ``words``: its text, which may quote a document or a command. ``name``: of the code, if known.
    """
    reason = _CODES.get(code or 0) or name or "refused"
    if code == 11000 and (found := _DUPLICATE.match(words)):
        collection, index = found[1], found[2]
        reason += f" in collection {collection}" if collection else ""
        reason += f", index {index}" if index else ""
    return _joined(f"{reason} (code {code})" if code is not None else reason)


def is_of_id(words: str) -> bool:
    """Return whether the text of MongoDB's error 11000 is about the id, not a user's index."""
    found = _DUPLICATE.match(words)
    return found is not None and found[2] == "_id_"


def _joined(text: str) -> str:
    return printable(" ".join(text.split())[:_MAX])
