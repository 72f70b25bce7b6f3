"""Holds: the entries that committed readers must wait for, and the waiting consumers. No I/O."""

from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from oplogd.stream.ring.postings import Waiter

# Memory of an undecided entry: items in a dictionary and in a set, and its offset.
_ITEM_BYTES = 200


@dataclass(eq=False, slots=True)
class Undecided:
    """The DIRECT and PUBLISH entries of a window whose pointers are not decided.

    The decision of a pointer is its last entry. So this is complete, whatever the window drops.
    """

    # The pointer of each entry by its offset.
    pointers: dict[int, int] = field(default_factory=dict)
    _offsets: dict[int, set[int]] = field(default_factory=dict)

    def add(self, offset: int, pointer: int) -> int:
        """Add an entry. Return its bytes of memory."""
        self.pointers[offset] = pointer
        self._offsets.setdefault(pointer, set()).add(offset)
        return _ITEM_BYTES

    def drop(self, offset: int) -> int:
        """Remove an entry if it is undecided. Return its bytes of memory."""
        pointer = self.pointers.pop(offset, None)
        if pointer is None:
            return 0
        offsets = self._offsets[pointer]
        offsets.remove(offset)
        if not offsets:
            del self._offsets[pointer]
        return _ITEM_BYTES

    def count(self, pointer: int) -> int:
        """Return the number of entries of a pointer."""
        return len(self._offsets.get(pointer, ()))

    def decide(self, pointer: int) -> tuple[set[int], int]:
        """Remove the entries of a pointer. Return their offsets and bytes of memory."""
        offsets = self._offsets.pop(pointer, set())
        for offset in offsets:
            del self.pointers[offset]
        return offsets, _ITEM_BYTES * len(offsets)


@dataclass(eq=False, slots=True, weakref_slot=True)
class Hold:
    """The consumers waiting for one pointer. ``is_over``: a decision or a rollback has come."""

    pointer: int
    is_over: bool = False
    waiting: dict[Waiter, None] = field(default_factory=dict)


class Holds:
    """The holds of a ring by their pointers. A hold lives as long as a consumer has it."""

    __slots__ = ("_holds",)

    def __init__(self) -> None:
        # Large, and most rings need none.
        self._holds: WeakValueDictionary[int, Hold] | None = None

    def of(self, pointer: int) -> Hold:
        """Return the hold of a pointer: every change of the pointer from now on ends it."""
        if self._holds is None:
            self._holds = WeakValueDictionary()
        hold = self._holds.get(pointer)
        if hold is None:
            hold = self._holds[pointer] = Hold(pointer)
        return hold

    def end(self, pointer: int, due: list[Waiter]) -> None:
        """End the hold of a pointer, and move its waiting consumers to ``due``."""
        hold = self._holds.pop(pointer, None) if self._holds is not None else None
        if hold is not None:
            hold.is_over = True
            due += hold.waiting
            hold.waiting.clear()

    def end_all(self, due: list[Waiter]) -> None:
        """End all holds, and move their waiting consumers to ``due``."""
        for pointer in list(self._holds or ()):
            self.end(pointer, due)
