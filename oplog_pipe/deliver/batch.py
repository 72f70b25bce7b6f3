"""Messages on their way to one write of a sink."""

from oplog_pipe.message import Message
from oplog_pipe.model import settings


class Batch:
    """- ``next``: offset behind the entries it covers. ``keys``: their newest offset per key.
    - ``bytes``: of the entries of its messages. ``deadline``: at which it is written.
    """

    def __init__(self, next: int, limits: settings.BatchLimits) -> None:
        self._limits = limits
        self.next = next
        self.messages: list[Message] = []
        self.keys: dict[str, int] = {}
        self.bytes = 0
        self.deadline = 0.0

    @property
    def room_messages(self) -> int:
        return self._limits.messages - len(self.messages)

    @property
    def is_full(self) -> bool:
        return self.room_messages <= 0 or self.bytes >= self._limits.bytes
