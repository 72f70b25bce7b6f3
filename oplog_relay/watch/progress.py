"""The life of a relay as lines of its log."""

import logging

from oplog_kit.units import rough_duration
from oplog_kit.wording import counted
from oplog_relay.model.events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
)

logger = logging.getLogger("oplog_relay")


def log_event(event: Event) -> None:
    """Log an event. An idle relay has no readings, and most of a long series of failures is for
    debugging.
    """
    match event:
        case LeaderAcquired(leader_id, term):
            logger.info("leading begins: term %d, leader id %s", term, leader_id)
        case LeaderRefreshed(leader_id, term, reason, failures):
            level = logging.INFO if is_logged(failures) else logging.DEBUG
            text = "leading continues with term %d, leader id %s: %s"
            logger.log(level, text, term, leader_id, reason)
        case LeaderRevoked(_, term):
            logger.info("leading ends: term %d is handed over", term)
        case LeaderFenced(_, term, reason):
            logger.warning("leading is lost: term %d: %s", term, reason)
        case MeterRead() if is_busy(event):
            logger.info("%s", progress(event))


def is_logged(failures: int) -> bool:
    """Return whether a failure is logged: the first, second, fourth, eighth … of a series."""
    return failures & (failures - 1) == 0


def is_busy(reading: MeterRead) -> bool:
    """Return whether there is something to tell."""
    return bool(reading.rate or reading.in_flight or reading.backlog or reading.blocked)


def progress(reading: MeterRead) -> str:
    """Return a reading as one line."""
    parts = [f"{reading.rate:,.1f} rows per second", f"{reading.in_flight:,} in flight"]
    if reading.backlog is not None:
        parts.append(f"backlog {reading.backlog:,}")
    if reading.oldest_seconds:
        parts.append(f"oldest row {rough_duration(reading.oldest_seconds)}")
    if reading.blocked:
        parts.append(f"{counted(reading.blocked, 'blocked key')}")
    return ", ".join(parts)
