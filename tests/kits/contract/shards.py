"""The shards of a log, by the rule in the reference."""

import zlib
from collections import Counter
from collections.abc import Collection, Iterable

from tests.kits.contract.wire import fresh_type

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


def spread_type(ids: Collection[str], least: int, total: int = TOTAL) -> str:
    """Return an unused type with which each shard has at least so many of these objects."""
    while True:
        type_ = fresh_type()
        counts = Counter(shard_of(f"{type_}/{id_}", total) for id_ in ids)
        if len(counts) == total and min(counts.values()) >= least:
            return type_


def divided(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the texts of each shard, in their order."""
    found: dict[str, list[str]] = {shard: [] for shard in SHARDS}
    for text in texts:
        found[shard_of(text)].append(text)
    return found
