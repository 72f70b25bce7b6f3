"""Words for messages. No I/O."""

import difflib
from collections.abc import Iterable

# Longest part of a name or value in a message, in characters.
_MAX_REPEATED = 100


def shortened(text: str) -> str:
    """Return a name or value of a client, cut for a message."""
    return text if len(text) <= _MAX_REPEATED else f"{text[:_MAX_REPEATED]}…"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def near(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence with the most similar name, or nothing."""
    found = difflib.get_close_matches(name, [*known], n=1, cutoff=0.8)
    return f"; did you mean {found[0]}?" if found else ""
