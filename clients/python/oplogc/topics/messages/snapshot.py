"""A transaction of another transaction manager: its pointers. No I/O."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

MAX_POINTER = (1 << 62) - 1
_LONG = (1 << 63) - 1
_DIGITS = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_MEMBERS = {
    "readPointer": "read_pointer",
    "writePointer": "write_pointer",
    "inProgress": "in_progress",
    "invalid": "invalid",
}


class HasWritePointer(Protocol):
    """A transaction with a write pointer."""

    @property
    def write_pointer(self) -> int | str | None: ...


@dataclass(frozen=True, slots=True)
class ForeignTransaction:
    """The pointers of a transaction, as its manager has given them.

    ``write_pointer``: its messages are published under it, and its own polls see them. None: it
    only reads. Of the others it sees those up to ``read_pointer`` and in neither list. A poll stops
    before messages of pointers in progress or later ones, and leaves out those of invalid ones.
    """

    read_pointer: int
    write_pointer: int | None = None
    in_progress: Collection[int] = ()
    invalid: Collection[int] = ()

    @classmethod
    def of_json(cls, given: object) -> Self:
        """Read the object of an agent's poll: ``readPointer``, ``writePointer``, ``inProgress`` and
        ``invalid``. Pointers may be text. Raise ValueError, which names the member.
        """
        if not isinstance(given, Mapping):
            raise ValueError("give an object with readPointer")
        if unknown := sorted(map(str, given.keys() - _MEMBERS.keys())):
            raise ValueError(f"{unknown[0][:50]}: is not a member of a transaction")
        if "readPointer" not in given:
            raise ValueError("readPointer: is required")
        return cls(**{_MEMBERS[name]: _value(name, value) for name, value in given.items()})

    def as_json(self) -> dict[str, object]:
        """Return the object of an agent's poll. Raise ValueError."""
        shown: dict[str, object] = {"readPointer": _long("read_pointer", self.read_pointer)}
        if self.write_pointer is not None:
            shown["writePointer"] = _long("write_pointer", self.write_pointer)
        shown["inProgress"] = _longs("in_progress", self.in_progress)
        shown["invalid"] = _longs("invalid", self.invalid)
        return shown


def pointer_of(transaction: int | str | HasWritePointer) -> int:
    """Return the write pointer of a transaction, which may be given alone. Raise ValueError."""
    given: Any = transaction
    if not isinstance(given, int | str):
        given = getattr(given, "write_pointer", None)
        if given is None:
            raise ValueError(f"{type(transaction).__name__} has no write pointer")
    try:
        pointer = _long("pointer", given)
    except ValueError:
        pointer = -1
    if not 0 <= pointer <= MAX_POINTER:
        raise ValueError(
            f"{given!r} is not a pointer: give a whole number from 0 to {MAX_POINTER} (2^62 - 1)"
        )
    return pointer


def _value(name: str, given: Any) -> Any:
    if name in ("readPointer", "writePointer"):
        is_absent = given is None and name == "writePointer"
        return None if is_absent else _long(name, given)
    return () if given is None else tuple(_longs(name, given))


def _long(name: str, given: Any) -> int:
    if isinstance(given, str) and _DIGITS.fullmatch(given):
        given = int(given)
    if type(given) is not int or not -_LONG - 1 <= given <= _LONG:
        raise ValueError(f"{name}: must be a whole number of 64 bits")
    return given


def _longs(name: str, given: Any) -> list[int]:
    if isinstance(given, str | Mapping) or not isinstance(given, Collection):
        raise ValueError(f"{name}: must be a list of pointers")
    return [_long(f"{name}[{index}]", each) for index, each in enumerate(given)]
