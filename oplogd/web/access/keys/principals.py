"""The file of principals: names with the hash of a password and a right. No I/O.

[search]
password_hash = "$scrypt$ln=14,r=8,p=1$..."
read = ["system/oplog"]
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from oplog_kit.disk import decoded
from oplogd.errors import RightError
from oplogd.web.access.keys.scrypt import Hash, parse_hash
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.rights import Right

MAX_PRINCIPALS = 1_000
# Two are enough for a rotation.
MAX_HASHES = 4

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}", re.ASCII)
_HASH = "password_hash"


class Principal(NamedTuple):
    """A named client. Any of ``hashes`` may fit."""

    name: str
    hashes: tuple[Hash, ...]
    right: Right


def principals_in(content: bytes) -> dict[str, Principal]:
    """Return the principals in a file by name. Raises ValueError.

    The message continues the name of the file, and repeats no value.
    """
    text = decoded(content)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        place = re.search(r"\(at [^()]*\)$", str(error))
        raise ValueError(f"is no TOML {place[0]}" if place else "is no TOML") from None
    if not tables:
        raise ValueError("names no principal")
    if len(tables) > MAX_PRINCIPALS:
        raise ValueError(f"has {len(tables):,} principals, at most {MAX_PRINCIPALS:,} are possible")
    return {name: _principal(name, table) for name, table in tables.items()}


def _principal(name: str, table: Any) -> Principal:
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            "has a name that is not 1 to 100 ASCII letters, digits, '.', '_', '@', '-'"
        )
    if not isinstance(table, Mapping):
        raise ValueError(f"must have tables only: [{name}]")
    given = dict(table)
    hashes = given.pop(_HASH, None)
    texts = [hashes] if isinstance(hashes, str) else hashes
    if not isinstance(texts, list) or not 1 <= len(texts) <= MAX_HASHES:
        raise ValueError(f"[{name}] {_HASH}: must be a hash, or a list of 1 to {MAX_HASHES}")
    try:
        parsed = tuple(parse_hash(each if isinstance(each, str) else "") for each in texts)
    except ValueError as error:
        raise ValueError(f"[{name}] {_HASH}: {error}") from None
    try:
        return Principal(name, parsed, right_of(given))
    except RightError as error:
        raise ValueError(f"[{name}] {error}") from None
