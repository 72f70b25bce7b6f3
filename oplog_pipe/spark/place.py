"""Paths of the settings, as Spark takes them."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from oplog_pipe.errors import ConfigError

# Spark takes them for patterns when it reads.
_PATTERN = re.compile(r"[][{}*?\\]")


def located(path: str, root: Path) -> str:
    """Return a path as Spark takes it. A relative one begins at ``root``. Raises ConfigError."""
    found = path if urlsplit(path).scheme else os.path.normpath(root / path)
    if _PATTERN.search(found):
        raise ConfigError(f"path: {found} must not hold one of [ ] {{ }} * ? \\")
    return found


def is_within(path: str, other: str) -> bool:
    """Return whether a path is in a folder, or is the folder."""
    one, two = (each if urlsplit(each).scheme else os.path.abspath(each) for each in (path, other))
    return f"{one.rstrip('/')}/".startswith(f"{two.rstrip('/')}/")
