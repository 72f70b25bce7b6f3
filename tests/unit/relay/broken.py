"""Engines and databases with one rule broken each, to show that the model notices."""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from oplog_relay import Purged, Row
from oplog_relay.leader.flow import Flow, Request
from oplog_relay.leader.leadership import Leadership
from tests.kits.relay.world import World


class NoNewTerm(Leadership):
    """Leads on with the same term after an uncertain answer."""

    def renew(self, term: int) -> None:
        pass


class FreeAtAcknowledgement(Flow):
    """Frees a key before its row is purged."""

    def accept(self, request: Request) -> None:
        super().accept(request)
        super().purged(request.rows, 0.0)

    def purged(self, rows: Sequence[Row], now: float) -> None:
        pass


class PassesKnownRows(Flow):
    """Takes every row with the id of one that it holds for this one."""

    def end_mark(self, rows: Sequence[Row], now: float) -> Row | None:
        return super().end_mark([row for row in rows if row.id not in self._held], now)


def purge_by_id(world: World, leader_id: UUID, rows: Sequence[Row]) -> Purged:
    """Delete whatever has the id of a row that was sent."""
    for row in rows:
        world.rows.pop(row.id, None)
    return Purged()


def mark_around_locks(
    world: World, leader_id: UUID, limit: int, number: int, passed: Collection[str]
) -> list[Row]:
    """Pass over a locked row, and return rows of its key behind it."""
    locked, world.locked = world.locked, set()
    hidden = {id: world.rows.pop(id) for id in locked if id in world.rows}
    found = _MARK(world, leader_id, limit, number, passed)
    world.rows |= hidden
    world.locked = locked
    return found


_MARK = World.mark
_FLOW = "oplog_relay.leader.term.Flow"
_WORLD = "tests.kits.relay.world.World"

# Names in the engine or in the world with their replacements, and seeds of schedules.
BROKEN: dict[str, tuple[dict[str, Callable[..., object]], range]] = {
    "no new term after an uncertain answer": (
        {"oplog_relay.leader.lead.Leadership": NoNewTerm},
        range(40),
    ),
    "a key is free at the acknowledgement": ({_FLOW: FreeAtAcknowledgement}, range(40)),
    # The 26 schedules before these do not show it.
    "a purge judges by the id": ({f"{_WORLD}.purge": purge_by_id}, range(26, 60)),
    "rows are known and purged by their ids": (
        {_FLOW: PassesKnownRows, f"{_WORLD}.purge": purge_by_id},
        range(26, 60),
    ),
    "a mark passes over locked rows": ({f"{_WORLD}.mark": mark_around_locks}, range(60)),
}
