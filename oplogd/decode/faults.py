"""The faults of a request: all are counted, the first ones are named. No I/O."""

from typing import Generic, TypeVar

import msgspec

# Faults named in an answer, and about the bytes of JSON that they may have together.
MAX_NAMED = 100
MAX_NAMED_BYTES = 12 * 1024

_Fault = TypeVar("_Fault")


class FaultyError(Exception):
    """A request has a fault. Its reader wants to know no more."""


class Faults(Generic[_Fault]):
    """``named``: the first faults, as many as an answer names. ``count``: the number of all.

    ``is_brief``: the first one raises FaultyError.
    """

    def __init__(self, *, is_brief: bool = False) -> None:
        self._is_brief = is_brief
        self.named: list[_Fault] = []
        self.count = 0
        self._room = MAX_NAMED_BYTES

    def add(self, fault: _Fault) -> None:
        if self._is_brief:
            raise FaultyError
        self.count += 1
        if len(self.named) == MAX_NAMED or self._room <= 0:
            return
        self._room -= len(msgspec.json.encode(fault))
        if self._room >= 0 or not self.named:
            self.named.append(fault)

    def __bool__(self) -> bool:
        return self.count > 0
