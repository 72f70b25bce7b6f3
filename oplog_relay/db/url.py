"""URLs of databases, as SQLAlchemy reads them, and the kinds of databases. No I/O.

Each kind is a module or folder beside this one, with a subclass of ``DatabaseUrl``. Its import
needs no driver.
"""

import re
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from urllib.parse import parse_qs

from oplog_relay.db.base import DatabaseUrl
from oplog_relay.model.errors import ConfigError

# As SQLAlchemy's: a user has no colon, a password no at sign unless they are percent-encoded.
_URL = re.compile(
    r"""
    (?P<scheme>[\w+]+)://
    (?: (?P<user>[^:/@]*) (?: :(?P<password>[^@]*) )? @ )?
    (?: \[(?P<ipv6>[^]/?]+)\] | (?P<host>[^/:?]+) )?
    (?: :(?P<port>[^/?]*) )?
    (?: /(?P<database>[^?]*) )?
    (?: \?(?P<query>.*) )?
    """,
    re.VERBOSE,
)


@cache
def kinds() -> dict[str, type[DatabaseUrl]]:
    """Return each kind of database by its name, in the order of the names."""
    found = {}
    for module in iter_modules(import_module(__package__).__path__):
        for each in vars(import_module(f"{__package__}.{module.name}")).values():
            if isinstance(each, type) and issubclass(each, DatabaseUrl) and each.schemes:
                found[each.kind] = each
    return dict(sorted(found.items()))


def parse(url: str) -> DatabaseUrl:
    """Read the URL of a database. Raises ConfigError, without the URL: it may hold a password."""
    found = _URL.fullmatch(url)
    *others, last = [example for each in kinds().values() for example in each.examples]
    examples = f"{', '.join(others)} or {last}"
    if found is None:
        raise ConfigError(f"database.url: not a URL such as {examples}")
    scheme = found["scheme"]
    kind = next((each for each in kinds().values() if scheme in each.schemes), None)
    if kind is None:
        raise ConfigError(f"database.url: {scheme}:// is not supported; use {examples}")
    parts = {name: value for name, value in found.groupdict().items() if value is not None}
    return kind.read(parts, parse_qs(found["query"] or ""))
