"""Work in pieces, so that the event loop can do other work in between. No I/O."""

from collections.abc import Generator, Iterable, Iterator, Sized
from typing import TypeVar

_T = TypeVar("_T")
_Sized = TypeVar("_Sized", bound=Sized)

# A generator that yields after each piece of at most a few milliseconds.
Pieces = Generator[None, None, _T]

# Values handled together, unless they have more bytes than the second figure.
_MOST_VALUES = 64
_MOST_BYTES = 64 * 1024


def pieces(values: Iterable[_Sized]) -> Iterator[list[_Sized]]:
    """Yield the values in groups small enough for one piece of work.

    ``len`` of a value is its size in bytes.
    """
    group: list[_Sized] = []
    size = 0
    for value in values:
        group.append(value)
        size += len(value)
        if len(group) == _MOST_VALUES or size >= _MOST_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def at_once(work: Pieces[_T]) -> _T:
    """Run work to its end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: _T = end.value
            return value
