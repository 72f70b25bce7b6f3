"""Checks of an event stream: each block against the promises and the world's history."""

from dataclasses import dataclass, field
from typing import Literal

from oplogd.model.event_id import EventId, Mark, format_id, parse_position
from oplogd.model.operation import decode_data
from oplogd.model.shard import hash_of
from oplogd.store import Entry
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases.phase import LogPhase
from oplogd.stream.ring.filters import Filter
from tests.kits.models.operations import key_of
from tests.kits.stream.blocks import Block
from tests.kits.stream.worlds import TYPES, WatchedConsumer, World


def mark_of(consumer: StreamConsumer) -> Mark:
    """Return the place in the log of a consumer that gets no states."""
    assert isinstance(consumer.phase, LogPhase)
    return consumer.phase.mark


@dataclass(eq=False)
class StreamChecker:
    """Keeps objects and the last event id as a real client does, and checks every block.

    The promises follow from the place at which it started and from the world's history.

    ``place``: the offset up to which it has every operation that passes; -1: none; None: its id is
    not of this history, so it must get ``reset``. ``whole``: types of which it has every object.
    """

    world: World
    filter: Filter
    checkpoints: bool = False
    objects: dict[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    place: int | None = -1
    last_id: str = ""
    phase: Literal["live", "states"] = "live"
    resets: int = 0
    consumer: WatchedConsumer | None = None
    # The epoch in which the present replication began, and the time that it goes back to.
    _epoch: Mark = Mark(-1, 0)
    _floor_ms: int = 0
    _chunk_epoch: Mark = Mark(-1, 0)
    _state_ms: int = 0

    @property
    def _passing_types(self) -> frozenset[str]:
        filter_ = self.filter
        is_partial = filter_.parents or filter_.ids or filter_.events
        return frozenset() if is_partial else filter_.types or TYPES

    async def take(self, block: Block) -> None:
        if block.event == "":
            self._take_checkpoint(block)
        elif block.event == "reset":
            self._take_reset(block)
        elif block.event == "live":
            self._take_live(block)
        elif len(block.id) == 24:
            self._take_operation(block)
        else:
            await self._take_state(block)
        self.last_id = block.id

    def _take_checkpoint(self, block: Block) -> None:
        assert self.checkpoints
        assert self.phase == "live", "a checkpoint between a replication's start and its live"
        assert self.place is not None
        position = parse_position(block.id)
        if isinstance(position, EventId):
            assert position.ms == self.world.mark(position.offset).ms
            passing = self._next_passing(self.place)
            assert passing is None or passing.offset > position.offset, (
                "a checkpoint past an operation not sent"
            )
            self.place = position.offset

    def _take_reset(self, block: Block) -> None:
        assert block == Block("1", "reset", "")
        if self.place is not None:
            assert self._may_reset(self.place), "a reset without a cause"
            self._epoch = self._chunk_epoch
        self.resets += 1
        self.objects = {}
        self.whole = self._passing_types
        self.place = -1
        self.phase = "states"
        self._floor_ms = self.world.head.ms
        self._state_ms = 0

    def _may_reset(self, place: int) -> bool:
        """Return whether the states cannot bridge the gap behind ``place``."""
        world = self.world
        if self.phase == "states":
            floor_ms, same = self._floor_ms, self._epoch == world.epoch
        else:
            same = (
                place > world.epoch.offset
            )  # if not: of an older history, or begun on an empty log
            floor_ms = world.mark(place).ms // 1000 * 1000 if same else 0
        return not same or floor_ms < max(world.epoch.ms, world.purged_ms)

    async def _take_state(self, block: Block) -> None:
        world = self.world
        assert self.place is not None, "must get a reset first"
        if self.phase == "live":
            assert not await world.is_in_log(self.place), "a replication without a cause"
            self._leave_live(self.place)
        assert block.event in ("insert", "delete")
        ms = int(block.id)
        assert ms >= self._state_ms, "states out of order"
        self._state_ms = ms
        assert self.filter.matches_state(decode_data(block.data), deleted=block.event == "delete")
        times = {epoch.ms for epoch in world.epochs[1:]}
        assert any(
            was.data == block.data
            and (was.event == "delete") == (block.event == "delete")
            and (was.ms == ms or ms in times)
            for was in world.history
        ), "a state that never was"
        self._apply(block)

    def _leave_live(self, place: int) -> None:
        """Note that it fell behind the log and gets states."""
        world = self.world
        self.phase = "states"
        self._epoch = world.epoch
        self._floor_ms = world.mark(place).ms // 1000 * 1000 if place > world.epoch.offset else 0
        self._state_ms = 0

    def _take_operation(self, block: Block) -> None:
        assert self.phase == "live"
        assert self.place is not None
        found = self._next_passing(self.place)
        assert found is not None, "more than the log holds"
        assert block == Block(format_id(Mark(found.offset, found.ms)), found.event, found.data)
        self.place = found.offset
        self._apply(block)

    def _take_live(self, block: Block) -> None:
        world = self.world
        assert self.place is not None, "must get a reset first"
        assert block.data == ""
        assert self.consumer is not None
        mark = mark_of(self.consumer)
        if len(block.id) == 24:
            assert block.id == format_id(world.mark(mark.offset)), (
                "the id of an operation that never was"
            )
        else:
            assert mark.offset in [epoch.offset for epoch in world.epochs], "the log was not empty"
            assert int(block.id) >= self._state_ms
        self._check(mark.offset)
        self.place = mark.offset
        self.phase = "live"

    def check_drained(self) -> None:
        """Assert that it has everything promised, when there is nothing more to read."""
        assert self.phase == "live"
        assert self.place is not None
        assert self._next_passing(self.place) is None, "operations are missing"
        assert self.consumer is None or self.consumer.lag() == (0, 0)
        self._check(self.world.head.offset)

    def _check(self, offset: int) -> None:
        """Compare the objects with the fold of the log up to ``offset``.

        Later operations are still to come.
        """
        assert self.place is not None
        to_come = {key_of(was.data) for was in self.world.history[offset:]}
        states = {
            key: state for key, state in self.world.fold(offset).items() if key not in to_come
        }
        for key, state in states.items():
            data = decode_data(state.data)
            wants = not self.filter.events and self.filter.matches_state(
                data, deleted=state.deleted
            )
            if state.offset > self.place and wants:
                assert self.objects.get(key) == (None if state.deleted else state.data), (
                    f"{key} is not up to date"
                )
        live = {key: state.data for key, state in states.items() if not state.deleted}
        mine = {key: data for key, data in self.objects.items() if key not in to_come}
        assert self._wholly(mine) == self._wholly(live)

    def _wholly(self, objects: dict[str, str]) -> dict[str, str]:
        shard = self.filter.shard
        return {
            key: data
            for key, data in objects.items()
            if key.partition("/")[0] in self.whole and (shard is None or shard.has(hash_of(key)))
        }

    def _objects_at(self, offset: int) -> dict[str, str]:
        return {
            key: state.data
            for key, state in self.world.fold(max(offset, 0)).items()
            if not state.deleted
        }

    def _next_passing(self, place: int) -> Entry | None:
        for was in self.world.history[max(place, 0) :]:
            if self.filter.matches(was.event, decode_data(was.data)):
                return was
        return None

    def _apply(self, block: Block) -> None:
        if block.event == "delete":
            self.objects.pop(key_of(block.data), None)
        else:
            self.objects[key_of(block.data)] = block.data
