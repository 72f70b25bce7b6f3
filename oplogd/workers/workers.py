"""The workers of an agent: what they share, and the place of one of them."""

from typing import NamedTuple


class Workers:
    """What the workers share. It is made before they are forked, and outlives each of them.

    ``count``: their number, at least 1. More than one need Linux.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count


class Worker(NamedTuple):
    """The place of one worker. A worker that has died is replaced in the same place.

    ``number``: 0 to ``count`` - 1.
    """

    workers: Workers
    number: int

    @classmethod
    def alone(cls) -> "Worker":
        """Return the only worker of an agent."""
        return cls(Workers(), 0)
