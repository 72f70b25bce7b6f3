"""Paths of the settings, as Spark takes them."""

from pathlib import Path
from urllib.parse import urlsplit


def located(path: str, root: Path) -> str:
    """Return a path as Spark takes it. A relative one begins at ``root``."""
    return path if urlsplit(path).scheme else str(root / path)
