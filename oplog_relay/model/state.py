"""The state of a relay, as values. No I/O."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """The life of a relay, in this order."""

    CREATED = "created"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Blocked(NamedTuple):
    """A row the agent refuses for good, first of its key.

    ``reason``: the agent's sentence. ``since``: time of the first refusal. ``attempts``: refusals.
    """

    id: int
    topic: str
    key: str
    reason: str
    since: datetime
    attempts: int


@dataclass
class Counters:
    """Totals since the start.

    - ``relayed``: rows acknowledged and purged. ``requests``: publishes begun.
    - ``marks``, ``marked``: successful marks; their rows. ``purges``: successful purges.
    - ``refused``: refusals of single rows. ``uncertain``: failures at the end of a term.
    - ``forbidden``: publishes the agent refused whatever their rows.
    - ``acquired``, ``refreshes``, ``fenced``: leads won, renewed and lost.
    """

    relayed: int = 0
    requests: int = 0
    marks: int = 0
    marked: int = 0
    purges: int = 0
    refused: int = 0
    uncertain: int = 0
    forbidden: int = 0
    acquired: int = 0
    refreshes: int = 0
    fenced: int = 0
