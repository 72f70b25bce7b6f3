"""Paths of the settings, as Spark takes them."""

import os
import re
from pathlib import Path

from oplog_pipe.errors import ConfigError

# Hadoop's URLs have no query: a question mark is a part of the path.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(/.*)?", re.DOTALL)
# A container of Azure is in the place of a user.
_HOST = re.compile(r"//([^:@]+@)?[^:@]*(:(?P<port>[0-9]{1,5}))?")
_MOST_PORTS = 65_535
# Spark reads paths as patterns. A control character ends the name of a file, or a line of a log.
_REFUSED = re.compile(r"[][{}*?\\\x00-\x1f\x7f]")


def located(path: str, root: Path) -> str:
    """Return a path as Spark takes it. A relative one begins at ``root``. Raises ConfigError."""
    url = _URL.fullmatch(path)
    found = rest = os.path.normpath(root / path).replace("//", "/")
    if url is not None:
        found, rest = path, url[3] or ""
        _check_host(url[1], url[2] or "//")
    if _REFUSED.search(found) or ":" in rest:  # Hadoop takes the name before a colon for a scheme
        raise ConfigError(
            f"path: {found!r} must not hold one of : [ ] {{ }} * ? \\ or a control character"
        )
    return found


def _check_host(scheme: str, host: str) -> None:
    """Raise ConfigError, which does not repeat the host: it may hold a password."""
    if scheme.lower() == "file":
        if host != "//":
            raise ConfigError("path: must be a whole path behind file://, such as file:///tables/x")
        return
    parts = _HOST.fullmatch(host)
    if parts is None or int(parts["port"] or 0) > _MOST_PORTS:
        raise ConfigError(
            "path: must begin as s3a://bucket or hdfs://host:9000 do, with a port of at most"
            f" {_MOST_PORTS} and without credentials, which belong to Spark's configuration"
        )


def is_root(path: str) -> bool:
    """Return whether a path is the first folder of its file system."""
    return not _plain(path)[1]


def is_within(path: str, other: str) -> bool:
    """Return whether a path is in a folder, or is the folder."""
    (system, inner), (other_system, outer) = _plain(path), _plain(other)
    return system == other_system and f"{inner}/".startswith(f"{outer}/" if outer else "")


def _plain(path: str) -> tuple[str, str]:
    """Return file system and path. There is one way to write them, but for symbolic links."""
    url = _URL.fullmatch(path)
    if url is None:
        return "file://", os.path.abspath(path).strip("/")
    return f"{url[1].lower()}:{url[2] or '//'}", os.path.normpath(f"/{url[3] or ''}").strip("/")


def store_of(text: str, root: Path) -> str:
    """Return a store of the settings as the data source takes it: a file, or a URL of MongoDB."""
    return text if "://" in text else os.path.normpath(root / text)
