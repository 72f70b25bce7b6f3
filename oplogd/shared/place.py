"""The place of one worker among those that write to one SQLite file."""

from typing import NamedTuple

from oplogd.shared.bells import Bell, Bells
from oplogd.shared.heads import HeadTables
from oplogd.shared.turn import Turn


class WriterPlace(NamedTuple):
    """``turn``: to write. ``bells``: rung after each write, the one at ``number`` is heard here.

    ``is_first``: no worker has opened the file yet, so this one may create it.
    """

    turn: Turn
    bells: Bells
    heads: HeadTables
    number: int
    is_first: bool = False

    @property
    def bell(self) -> Bell:
        return self.bells.each[self.number]

    def changes(self) -> int:
        """Return a number that grows with each change of a topic."""
        return self.heads.all_changes()

    def ring(self) -> None:
        """Let the other workers look for entries and changes. Any thread may call it."""
        self.bells.ring_others(self.number)
