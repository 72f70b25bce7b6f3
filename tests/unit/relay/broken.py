"""Engines with one rule broken each, to show that the model notices."""

from collections.abc import Callable, Sequence

from oplog_relay import Row
from oplog_relay.flow import Flow, Request
from oplog_relay.leadership import Leadership


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


class QueuesKnownRows(Flow):
    """Queues rows again that it holds."""

    def end_mark(self, rows: Sequence[Row], now: float) -> int:
        self._held -= {row.id for row in rows}
        return super().end_mark(rows, now)


# The name in the engine, its replacement, and seeds of schedules.
BROKEN: dict[str, tuple[str, Callable[..., object], range]] = {
    "no new term after an uncertain answer": (
        "oplog_relay.relay.Leadership",
        NoNewTerm,
        range(40),
    ),
    "a key is free at the acknowledgement": (
        "oplog_relay.term.Flow",
        FreeAtAcknowledgement,
        range(40),
    ),
    "known rows are queued again": ("oplog_relay.term.Flow", QueuesKnownRows, range(60)),
}
