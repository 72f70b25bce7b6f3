"""Where the log and the states live: one interface, a module for each database."""

from oplogd.store.base import (
    MAX_CORRECTIONS,
    Correction,
    Corrector,
    Entry,
    Located,
    Stamp,
    State,
    StateCursor,
    StatesPage,
    Store,
    StoreStats,
    Verdict,
)

__all__ = [
    "MAX_CORRECTIONS",
    "Correction",
    "Corrector",
    "Entry",
    "Located",
    "Stamp",
    "State",
    "StateCursor",
    "StatesPage",
    "Store",
    "StoreStats",
    "Verdict",
]
