"""Paths of the settings, as Spark takes them."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from oplog_pipe.errors import ConfigError

# Spark takes them for patterns when it reads.
_PATTERN = re.compile(r"[][{}*?\\]")
_LOCAL = re.compile(r"^file:/+")


def located(path: str, root: Path) -> str:
    """Return a path as Spark takes it. A relative one begins at ``root``. Raises ConfigError."""
    found = path if urlsplit(path).scheme else os.path.normpath(root / path)
    if _PATTERN.search(found):
        raise ConfigError(f"path: {found} must not hold one of [ ] {{ }} * ? \\")
    return found


def is_within(path: str, other: str) -> bool:
    """Return whether a path is in a folder, or is the folder."""
    return f"{_plain(path)}/".startswith(f"{_plain(other)}/")


def _plain(path: str) -> str:
    """Return the only way to write a path, but for symbolic links."""
    local = _LOCAL.sub("/", path)
    return (local if urlsplit(local).scheme else os.path.abspath(local)).rstrip("/")
