"""Stores of the log and the states: one interface, a package for each database."""

from oplogd.store.base import (
    MAX_CORRECTIONS,
    BatchId,
    Correction,
    CorrectionResult,
    Corrector,
    Entry,
    FencedBatch,
    LogBounds,
    State,
    StateCursor,
    StatesPage,
    Store,
    StoreStats,
)
from oplogd.store.stored import decode_stored

__all__ = [
    "MAX_CORRECTIONS",
    "BatchId",
    "Correction",
    "CorrectionResult",
    "Corrector",
    "Entry",
    "FencedBatch",
    "LogBounds",
    "State",
    "StateCursor",
    "StatesPage",
    "Store",
    "StoreStats",
    "decode_stored",
]
