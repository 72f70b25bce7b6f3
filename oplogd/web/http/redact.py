"""Hides the folders of the agent's machine from clients. The log and errors at start name whole
paths.
"""

from collections.abc import Iterable
from pathlib import Path


def without_folders(text: str, files: Iterable[Path | None]) -> str:
    """Replace the path of each file in ``text`` by its name."""
    for file in filter(None, files):
        for path in (str(file.absolute()), str(file)):
            text = text.replace(path, file.name)
    return text
