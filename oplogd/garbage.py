"""Keeps connected consumers out of full garbage collections.

A full collection visits all old objects. Ten thousand streams are 200,000 of them or more, and the
event loop stops meanwhile. So the objects of connected streams are frozen, which takes no time.
When far more streams have ended than are connected, all are thawed, collected and frozen again.
Each freeze collects before: frozen garbage would stay as long as the connected streams.
"""

import asyncio
import gc

from oplogd.stream.hub import Hub

_LOOK_SECONDS = 0.25

# Freeze after this many new streams.
_BEGUN = 100

# Collect after this many streams have ended, or this many times the connected ones if that is more:
# the time of a collection grows with the connected streams. Few streams leave a cycle when they
# end. The collection finds other garbage that was frozen with the streams.
_ENDED = 250
_ENDED_PER_CONNECTED = 10

# Streams often end together. A collection waits up to this many looks for one in which none ended.
_PATIENCE = 40


class Freezer:
    """Freezes the objects of streams, and collects ended streams."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._begun = 0
        self._collected = 0
        self._ended = 0
        self._waited = 0

    async def run(self) -> None:
        """Look regularly until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Freeze or collect if it is due."""
        begun, connected = self._hub.counters.connections, len(self._hub.consumers)
        before, self._ended = self._ended, begun - connected
        if self._ended - self._collected >= max(_ENDED, _ENDED_PER_CONNECTED * connected):
            self._waited += 1
            if self._ended == before or self._waited > _PATIENCE:
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                self._waited, self._collected, self._begun = 0, self._ended, begun
        elif begun - self._begun >= _BEGUN:
            gc.collect()
            gc.freeze()
            self._begun = begun
