"""A feed: the ring of one log, and the bridge of its consumers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oplogd.names import OPLOG, TopicName
from oplogd.stream.ring import Ring
from oplogd.stream.view import View

if TYPE_CHECKING:
    from oplogd.stream.bridge import Bridge


@dataclass(eq=False, slots=True)
class Feed:
    """All consumers of a log on this agent share its feed."""

    ring: Ring
    bridge: "Bridge"
    name: TopicName = OPLOG

    def release(self, view: View) -> None:
        """Undo one call of ``ring.view``."""
        self.ring.release(view)
