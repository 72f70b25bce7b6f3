"""The figures that one worker tells: its present state, and its counters of the same moment."""

from collections.abc import Collection
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from oplogd.agent import Agent
from oplogd.stream.lags import Lags, Named, survey
from oplogd.web.figures.clock import clock_members, clock_warnings
from oplogd.web.figures.consumers import consumer_members, lag_members
from oplogd.web.figures.topics import streams_of
from oplogd.web.http.problem import without_folders

_Members = dict[str, Any]


class Told(msgspec.Struct):
    """What a worker tells of one moment. ``tallies``: a copy of its ``Tallies``.

    ``gauges``: members of /status that ``combine`` combines. ``head``: the offset of its ring.
    ``leases``: names of held leases. ``streams``: number by topic. ``named``: the consumers with a
    name. The private members are empty unless they were asked for.
    """

    tallies: bytes
    gauges: _Members
    troubles: list[str]
    clock: _Members
    clock_warnings: list[str]
    head: int
    leases: list[str]
    streams: dict[str, int]
    named: dict[str, Named]
    intake_stopped: bool = False
    consumers: list[_Members] = []
    refused_datagrams: list[_Members] = []


class WorkerFigures:
    """Collects the figures of the worker of this process. They contain no setting, so no secret.

    Messages never name the folders of ``private_files``.
    """

    def __init__(self, agent: Agent, private_files: Collection[Path | None]) -> None:
        self._agent = agent
        self._private_files = private_files

    async def tell(self, *, private: bool) -> Told:
        """Return the present figures. ``private``: also for users who may read the stream."""
        agent = self._agent
        lags = await survey(agent.hub.consumers, agent.clock.now_ms())
        consumers = (await consumer_members(lags))["consumers"] if private else []
        descriptors = await agent.descriptors.members()
        tallies = agent.worker.tallies  # from here on all figures are of one moment
        dropped = tallies.datagrams.dropped
        tallies.datagrams.dropped = max(dropped, agent.udp.kernel_drops())
        agent.topics.counters.save()
        clock = agent.store.clock, agent.clock_keeper
        return Told(
            bytes(tallies),
            self._gauges(lags, descriptors),
            [self.redacted(trouble) for trouble in agent.health.troubles],
            clock_members(*clock),
            [self.redacted(warning) for warning in clock_warnings(*clock)],
            agent.ring.head.offset,
            [*agent.leases.held],
            streams_of(agent.hub),
            lags.named,
            not agent.gate.is_open,
            consumers,
            [*agent.udp.refused.described()] if private else [],
        )

    async def answer(self, question: bytes) -> bytes:
        """Answer another worker. The question is ``private``, or empty."""
        return msgspec.msgpack.encode(await self.tell(private=bool(question)))

    def redacted(self, text: str) -> str:
        return without_folders(text, self._private_files)

    def _gauges(self, lags: Lags, descriptors: dict[str, int | None]) -> _Members:
        agent, hub, ring = self._agent, self._agent.hub, self._agent.ring
        queue, fenced, spool = agent.queue, agent.fenced, agent.spool
        feeds, messages = agent.feeds.stats, agent.topics.queue
        return {
            "queue_size": agent.queued,
            "queue_max_size": queue.max_operations,
            "queue_bytes": queue.bytes + fenced.bytes,
            "queue_max_bytes": queue.max_bytes,
            "spool": {
                "bytes": spool.bytes if spool else 0,
                "max_bytes": spool.max_bytes if spool else 0,
            },
            "clients": len(hub.consumers),
            "held_consumers": hub.held,
            "consumer_lag": lag_members(lags.largest),
            "ring": {
                "operations": len(ring.window),
                "max_operations": ring.max_entries,
                "bytes": ring.window.size,
                "max_bytes": ring.max_bytes,
            },
            "descriptors": descriptors,
            "longest_turn_seconds_last_minute": round(
                agent.turns.longest_last_minute(monotonic()), 4
            ),
            "rates": agent.rates._asdict(),
            "topics": {
                "queue_size": messages.count,
                "queue_bytes": messages.bytes,
                "feeds": feeds.feeds,
                "feeds_bytes": feeds.bytes,
            },
        }
