"""How far a streaming query is behind its log."""

import json
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)


class QueryLag(NamedTuple):
    """``operations``: in the log behind the last batch. ``seconds``: how much older its last is.

    0 and 0: it has caught up. ``query``: the name of the query, else its id.
    """

    query: str
    operations: int
    seconds: float


def lag_of(progress: StreamingQueryProgress) -> QueryLag | None:
    """Return the lag of a query's sources ``oplog`` together; the seconds of the latest one.

    None: it has none, or the newest position is not known because no agent and no store answers.
    """
    operations, seconds, is_ours = 0, 0.0, False
    for source in progress.sources:
        end, latest = _offset(source.endOffset), _offset(source.latestOffset)
        if end is None or latest is None:
            continue
        is_ours = True
        behind = max(0, latest["offset"] - end["offset"])
        operations += behind
        if behind:
            seconds = max(seconds, (latest["ms"] - end["ms"]) / 1000)
    name = progress.name or str(progress.id)
    return QueryLag(name, operations, seconds) if is_ours else None


class LagListener(StreamingQueryListener):
    """Calls ``report`` with the lag after each batch of each query of the session.

    Add it with ``spark.streams.addListener(LagListener(report))``.
    """

    def __init__(self, report: Callable[[QueryLag], None]) -> None:
        self._report = report

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        lag = lag_of(event.progress)
        if lag is not None:
            self._report(lag)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def _offset(text: str | None) -> dict[str, int] | None:
    """Return an offset of ours, None for one of another source or without a place in the log."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    is_ours = isinstance(found, dict) and {"id", "offset", "ms"} <= found.keys()
    return found if is_ours and found["offset"] else None
