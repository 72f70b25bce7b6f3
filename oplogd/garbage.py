"""Keeps the garbage collector from looking at every connected consumer again and again.

A full collection looks at all objects that have lived for some time. Ten thousand streams are more than a million of them, and
the event loop stands still for most of a second. So the objects of connected streams are frozen, which takes no time; once
far more streams have ended than are connected, all are thawed, collected and frozen again. Other garbage is collected as ever.
"""

import asyncio
import gc

from oplogd.stream.hub import Hub

_LOOK_SECONDS = 0.25
_BEGUN = 100
"""Streams that have begun since the last freeze."""

_ENDED = 250
_ENDED_OF_EACH = 10
"""Streams that have ended since the last collection, or so many times the connected ones if that is more: the more are connected,
the longer it takes. A stream leaves no cycle when it ends; the collection finds what else was frozen with the streams."""

_PATIENCE = 40
"""Looks for which a collection that is due waits for one between which no stream has ended: many often end together."""


class Freezer:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._begun = 0
        self._collected = 0
        self._ended = 0
        self._waited = 0

    async def run(self) -> None:
        """Run for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        begun, connected = self._hub.connections, len(self._hub.consumers)
        before, self._ended = self._ended, begun - connected
        if self._ended - self._collected >= max(_ENDED, _ENDED_OF_EACH * connected):
            self._waited += 1
            if self._ended == before or self._waited > _PATIENCE:
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                self._waited, self._collected, self._begun = 0, self._ended, begun
        elif begun - self._begun >= _BEGUN:
            gc.freeze()
            self._begun = begun
