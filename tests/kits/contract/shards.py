"""The shards of a log, by the rule in the reference."""

import zlib
from collections.abc import Iterable

TOTAL = 3
SHARDS = [f"{number}/{TOTAL}" for number in range(TOTAL)]


def shard_of(text: str, total: int = TOTAL) -> str:
    """Return the shard of an object (``type/id``), of a key, or of the id of a message."""
    return f"{zlib.crc32(text.encode()) % total}/{total}"


def one_of_each(prefix: str = "", total: int = TOTAL) -> list[str]:
    """Return a short text for each shard: with the prefix it is in this shard."""
    found: dict[str, str] = {}
    number = 0
    while len(found) < total:
        found.setdefault(shard_of(f"{prefix}{number}", total), str(number))
        number += 1
    return [found[f"{number}/{total}"] for number in range(total)]


def divided(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the texts of each shard, in their order."""
    found: dict[str, list[str]] = {shard: [] for shard in SHARDS}
    for text in texts:
        found[shard_of(text)].append(text)
    return found
