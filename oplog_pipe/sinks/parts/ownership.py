"""Whose a row of a target is. No I/O.

Each row names its owner. A sink changes and deletes its own rows. A row without an owner, of an
earlier release, belongs to the next sink to write it. The end of a copy leaves it alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

from oplog_pipe.errors import ConfigError, SinkError


@dataclass(frozen=True)
class Owner:
    """``pipe``: name of the pipe, or id of its folder. ``sink``: name of the sink.

    ``newest``: returns the largest version of this folder or checkpoint.
    """

    pipe: str
    sink: str
    newest: Callable[[], int]

    def __str__(self) -> str:
        return f"{self.pipe}/{self.sink}"

    def may_write(self, found: str | None) -> bool:
        """Return whether the sink may change a row. ``found``: owner of the row, if it has one."""
        return found is None or found == str(self)

    def refusal(self, row: str, found: object, index: int | None) -> SinkError:
        """Return the error for a row of another owner. ``row``: names it and its place."""
        return SinkError(
            f"{row} belongs to {found!r}, not to {str(self)!r}: write to another place, or take all"
            f" rows of that owner over once: `oplog-pipe adopt {self.sink} --from {found}`",
            index=index,
        )

    def check(self, place: str, newest: int | None) -> None:
        """Judge the newest version among the sink's rows in a place.

        Raises ConfigError if the pipe has not given it: the target would ignore new messages.
        """
        own = self.newest()
        if newest is not None and newest > own:
            raise ConfigError(
                f"sink {self.sink!r}: {place} has a row of version {newest}, and the newest version"
                f" of this pipe is {own}: another folder or checkpoint has written the row. Use"
                " that one, or empty the target and begin with a copy"
            )


class OwnedRows:
    """What all sinks with owners share. ``own`` is called before any other method."""

    def __init__(self) -> None:
        self._given: Owner | None = None
        # Places with no version above the newest one of the folder.
        self._judged: set[str] = set()

    def own(self, owner: Owner) -> None:
        self._given = owner

    @property
    def _owner(self) -> Owner:
        assert self._given is not None
        return self._given

    def _judge_once(self, place: str, judge: Callable[[], None]) -> None:
        """Judge a place before the first change in it. Raises the errors of ``judge``."""
        if place not in self._judged:
            judge()
            self._judged.add(place)

    def begin_copy(self, generation: int, source: str) -> None:
        """Do nothing: the versions of the copy's messages are above the generation."""
