"""Stores of the log and the states: one interface, a package for each database."""

from oplogd.store.base import (
    BatchId,
    Entry,
    FencedBatch,
    LogBounds,
    State,
    StateCursor,
    StatesPage,
    Store,
    StoreStats,
    decode_stored,
)
from oplogd.store.corrections import MAX_CORRECTIONS, Correction, CorrectionResult, Corrector

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
