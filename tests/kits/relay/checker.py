"""The judge of all relay tests: what may arrive, given the rows that were committed. No I/O."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Arrival(NamedTuple):
    """A row as a consumer got it. ``log``: a topic. ``ms``: its time there."""

    log: str
    key: str
    number: int
    ms: int = 0


class Sent(NamedTuple):
    """A committed row. The numbers of a key rise in the order of its transactions."""

    log: str
    number: int


def check(arrivals: Iterable[Arrival], committed: Mapping[str, Sequence[Sent]]) -> int:
    """Return the number of duplicates. ``arrivals``: each log in its order. ``committed``: by key.

    Raises AssertionError unless every row arrived in its log, no other arrived, each log has the
    rows of a key in order with duplicates only next to each other, and no time in another log
    shows another order.
    """
    by_key: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_key[arrival.key].append(arrival)
    problems = [
        f"key {key!r}: {problem}"
        for key in sorted(by_key.keys() | committed.keys())
        for problem in _problems(by_key.get(key, []), committed.get(key, ()))
    ]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])
    return sum(map(len, by_key.values())) - sum(map(len, committed.values()))


def _problems(arrivals: Sequence[Arrival], committed: Sequence[Sent]) -> Iterator[str]:
    rows = set(committed)
    assert len(rows) == len(committed), "numbers of committed rows repeat"
    for arrival in arrivals:
        if Sent(arrival.log, arrival.number) not in rows:
            yield f"{arrival.number} arrived in {arrival.log} and was never committed for it"
    arrived = {Sent(arrival.log, arrival.number) for arrival in arrivals}
    for row in committed:
        if row not in arrived:
            yield f"{row.number} is missing in {row.log}"
    for log in sorted({arrival.log for arrival in arrivals}):
        numbers = [arrival.number for arrival in arrivals if arrival.log == log]
        for before, after in pairwise(numbers):
            if after < before:
                yield f"{after} arrived after {before} in {log}"
    yield from _reversed_across(arrivals)


def _reversed_across(arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Compare the times of rows in different logs: a row's last copy is before the next row."""
    first: dict[int, Arrival] = {}
    last: dict[int, Arrival] = {}
    for arrival in sorted(arrivals, key=lambda arrival: arrival.ms):
        first.setdefault(arrival.number, arrival)
        last[arrival.number] = arrival
    numbers = sorted(first)
    for before, after in pairwise(numbers):
        if last[before].log != first[after].log and last[before].ms > first[after].ms:
            yield f"{after} arrived in {first[after].log} before {before} in {last[before].log}"
