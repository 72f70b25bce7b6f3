"""The URL of a database: files in it, and what its connections are safe from. No I/O."""

from pathlib import Path
from typing import Any

import psycopg
import psycopg.conninfo

from oplog_pipe.errors import SinkError

_PARAMETERS = {
    "client_encoding": "UTF8",  # a database with the encoding SQL_ASCII would return bytes
    "connect_timeout": "5",
    "fallback_application_name": "oplog-pipe",
    "keepalives_count": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "tcp_user_timeout": "10000",
}
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "passfile")
_VERIFIED = ("verify-ca", "verify-full")
_LOCAL = ("localhost", "127.0.0.1", "::1")


def conninfo(url: str, root: Path) -> str:
    """Return a URL as libpq takes it. Relative paths start at ``root``.

    Raises SinkError if it is no URL.
    """
    parts = _parts(url)
    for name in _FILES:
        # `system` stands for the certificates of the operating system.
        if (path := parts.get(name)) and (name, path) != ("sslrootcert", "system"):
            parts[name] = str(root / path)
    merged: dict[str, Any] = {**_PARAMETERS, **parts}
    return psycopg.conninfo.make_conninfo("", **merged)


def unverified(url: str) -> str | None:
    """Return why the server of a URL may be another one than it says. None: it is verified.

    A server on this machine counts as verified.
    """
    parts = _parts(url)
    hosts = [*str(parts.get("host", "")).split(","), *str(parts.get("hostaddr", "")).split(",")]
    if all(not host or host in _LOCAL or host.startswith(("/", "@")) for host in hosts):
        return None
    default = "verify-full" if parts.get("sslrootcert") == "system" else "prefer"
    mode = str(parts.get("sslmode", default))
    if mode in _VERIFIED:
        return None
    danger = "may be unencrypted" if mode in ("disable", "allow", "prefer") else "is encrypted"
    return (
        f"sslmode is {mode}: the connection {danger}, and the server's certificate is not verified;"
        " add sslmode=verify-full and sslrootcert to url"
    )


def _parts(url: str) -> dict[str, Any]:
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        # Of a password with an at sign, the rest would be the host, and in messages.
        if "@" in str(parts.get("host", "")):
            raise ValueError
        return parts
    except (psycopg.Error, ValueError):
        raise SinkError(
            "url: not a URL such as postgresql://user:password@host/database; percent-encode"
            " special characters of the password"
        ) from None
