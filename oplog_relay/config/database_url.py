"""The password in the URL of a database. No I/O."""

import re
from urllib.parse import quote

from oplog_relay.model.errors import ConfigError

_URL = re.compile(r"(?P<driver>[\w+]+://)(?:(?P<user>[^:/@]*)(?::[^@]*)?@)?(?P<rest>.*)", re.DOTALL)


def with_password(url: str, password: str) -> str:
    """Return the URL with this password instead of its own. Raises ConfigError."""
    match = _URL.fullmatch(url)
    if match is None or url.startswith("sqlite"):
        raise ConfigError("database.password: belongs to a URL such as postgresql://user@host/db")
    return f"{match['driver']}{match['user'] or ''}:{quote(password, safe='')}@{match['rest']}"
