"""Counters with fixed places in memory: in memory that processes share, they outlive a process."""

import ctypes
import inspect
from typing import Any, Self, TypeVar

_FIELD_TYPES: dict[object, Any] = {int: ctypes.c_int64, float: ctypes.c_double}

_T = TypeVar("_T", bound="Tally")


class Tally(ctypes.Structure):
    """Counters, each eight bytes long. A new one is all zeros, except for given members.

    Only one process writes it. Others read a counter whole, and may read two counters of
    different moments. Two are equal if their own counters are: nested ones do not count.
    """

    def members(self) -> dict[str, Any]:
        """Return the counters by name, without nested ones."""
        values = ((name, getattr(self, name)) for name, _, *_ in self._fields_)
        return {name: value for name, value in values if isinstance(value, int | float)}

    def include(self, other: Self) -> None:
        """Add the counters of another one, nested ones included."""
        for name, *_ in self._fields_:
            mine, more = getattr(self, name), getattr(other, name)
            if isinstance(mine, Tally):
                mine.include(more)
            elif isinstance(mine, ctypes.Array):
                mine[:] = [a + b for a, b in zip(mine, more, strict=True)]
            else:
                setattr(self, name, mine + more)

    def assign(self, other: Self) -> None:
        """Take over all counters of another one."""
        ctypes.memmove(ctypes.byref(self), ctypes.byref(other), ctypes.sizeof(self))

    def cell(self, name: str) -> ctypes.c_int64:
        """Return a counter by itself. It shares the memory."""
        return ctypes.c_int64.from_buffer(self, getattr(type(self), name).offset)

    def __getitem__(self, name: str) -> int:
        return int(getattr(self, name))

    def __setitem__(self, name: str, value: int) -> None:
        setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.members() == self.members()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counted = ", ".join(f"{name}={value}" for name, value in self.members().items() if value)
        return f"{type(self).__name__}({counted})"


def tally(kind: type[_T]) -> type[_T]:
    """Give a class its fields: each annotation is an int, a float or another such class."""
    fields: dict[str, Any] = inspect.get_annotations(kind)
    kind._fields_ = [(name, _FIELD_TYPES.get(of, of)) for name, of in fields.items()]
    return kind
