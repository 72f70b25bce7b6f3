"""The differences between streams of operations and of topics. No I/O."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from oplogc.wire.errors import OplogError
from oplogc.wire.events import Checkpoint
from oplogc.wire.sse import Block


class Handed(Protocol):
    """An event for the program."""

    @property
    def event_id(self) -> str: ...

    @property
    def sequence(self) -> int: ...


E = TypeVar("E", bound=Handed)


@dataclass(frozen=True, slots=True)
class StreamFormat(Generic[E]):
    """How to read the blocks and the refusals of one kind of stream."""

    read: Callable[[Block, int], E | Checkpoint | None]
    """Returns the event of a block, its position, or None. Raises ProtocolError."""
    is_known: Callable[[Block], bool]
    """Whether this client knows the block's event."""
    refused: Callable[[int, str], OplogError]
    """Returns the error for a status and the agent's sentence."""
    positions: re.Pattern[str]
    """Matches the positions in a state file."""
    max_block_bytes: int
    isolation: str = ""
    """Isolation in the state file: see ``StateFile``."""
