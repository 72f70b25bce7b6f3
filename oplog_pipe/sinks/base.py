"""The sink interface."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from oplog_pipe.message import Message
from oplog_pipe.sinks.parts.fence import Fence
from oplog_pipe.sinks.parts.ownership import Owner


class Sink(Protocol):
    """Takes messages, in the order of the log. One thread calls the methods, one after another.

    Messages may come again. Write nothing over a larger ``version``. Raise SinkError, with
    ``transient`` if a repetition may help. Any other exception counts as permanent.
    """

    def open(self) -> None:
        """Connect. Called once, before everything else. Raises SinkError."""
        return

    def write(self, messages: Sequence[Message]) -> None:
        """Write messages. They count as acknowledged when this returns.

        At least one, in ascending order of offsets. Several of them may concern one object.
        """

    def begin_copy(self, generation: int, source: str) -> None:
        """A copy of all objects of a source begins. ``generation``: version of its beginning.

        May be called again with the same arguments. An earlier copy of the source may lack its end.
        """
        return

    def end_copy(self, generation: int, source: str) -> None:
        """The copy is complete: remove the source's objects of a version below ``generation``."""
        return

    def close(self) -> None:
        """Disconnect. Called once at the end, also after a failure. Nothing is written any more."""
        return


@runtime_checkable
class Owned(Protocol):
    """A sink whose rows name their owner.

    ``write`` raises SinkError with the index of a message for a row of another owner, and
    ConfigError for rows of this owner from a newer folder. ``end_copy`` removes own rows only.
    """

    def own(self, owner: Owner) -> None:
        """Take the owner. Called once, before ``open``."""

    def adopt(self, former: str) -> int:
        """Make all rows of another owner rows of this one, and return their number.

        Called after ``open``, instead of ``write``. Raises SinkError, ConfigError.
        """


def removes_at_end_of_copy(sink: Sink) -> bool:
    """Return whether ``end_copy`` lets the target forget deleted objects.

    Sinks with owners do. Any other one says so with a true attribute of this name.
    """
    return isinstance(sink, Owned) or getattr(sink, "removes_at_end_of_copy", False) is True


@runtime_checkable
class Mirroring(Protocol):
    """A sink whose target may send its messages back."""

    notice: str | None
    """What an operator should know about a sink that works; None: nothing."""

    def mirror(self, hop: str) -> None:
        """Take the id of the sink, which no other sink of any pipe has. Called before ``open``."""


@runtime_checkable
class Upgrading(Protocol):
    """A sink whose places may lack something only an administrator can add."""

    def missing(self) -> list[str]:
        """Return a statement for each needed change. Called after ``open``. Raises SinkError."""


@runtime_checkable
class Inspected(Protocol):
    """A sink with a check of its target. Called after ``open``."""

    def faults(self) -> list[str]:
        """Return why the target cannot take messages. Raises SinkError."""

    def remarks(self) -> list[str]:
        """Return what is unsafe about the connection."""


@runtime_checkable
class Probed(Protocol):
    """A sink with a check instead of ``open``: a pipe may be writing to its target."""

    def probe(self) -> str:
        """Return a sentence about a good target. Raises SinkError."""


@runtime_checkable
class Fenced(Protocol):
    """A sink with many writers whose target refuses what comes too late.

    A writer that has stopped for a while could bring back what others have deleted meanwhile. So
    the target keeps a fence for each owner. The driver moves it, and a write counts only while the
    fence is where the writer stands. Called after ``open``.
    """

    @property
    def late_seconds(self) -> float:
        """How long after a move something of an earlier writer may come; 0: nothing does."""

    def begin_term(self) -> int:
        """Return a term larger than every one before: earlier drivers and writers fail.

        Raises SinkError.
        """

    def read_fence(self) -> Fence | None:
        """Return where the fence is; None: there is none. Raises SinkError."""

    def move_fence(self, fence: Fence) -> None:
        """Move the fence to a later step of a term.

        Raises SinkError: FencedError if a later term has begun.
        """

    def stand_at(self, fence: Fence) -> None:
        """Let later calls raise FencedError, and write nothing, if the fence is elsewhere."""


@runtime_checkable
class Abandoning(Protocol):
    """A sink that tells its target about copies."""

    def abandon_copy(self, generation: int, source: str) -> None:
        """The copy has ended and is not whole. Called instead of ``end_copy``."""
