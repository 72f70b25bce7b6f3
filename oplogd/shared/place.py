"""The place of one worker among those that write to one SQLite file."""

from typing import NamedTuple

from oplogd.shared.bells import Bell, Bells
from oplogd.shared.turn import Turn


class WriterPlace(NamedTuple):
    """``turn``: to write. ``bells``: rung after each write, the one at ``number`` is heard here."""

    turn: Turn
    bells: Bells
    number: int

    @property
    def bell(self) -> Bell:
        return self.bells.each[self.number]

    def ring(self) -> None:
        """Let the other workers look for entries and changes. Any thread may call it."""
        self.bells.ring_others(self.number)
