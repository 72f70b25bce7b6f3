"""Stores of the log and the states: one interface, a package for each database."""

from oplogd.store.base import BatchId as BatchId
from oplogd.store.base import Entry as Entry
from oplogd.store.base import FencedBatch as FencedBatch
from oplogd.store.base import LogBounds as LogBounds
from oplogd.store.base import State as State
from oplogd.store.base import StateCursor as StateCursor
from oplogd.store.base import StatesPage as StatesPage
from oplogd.store.base import Store as Store
from oplogd.store.base import StoreStats as StoreStats
from oplogd.store.base import decode_stored as decode_stored
from oplogd.store.base import sound_identity as sound_identity
from oplogd.store.corrections import MAX_CORRECTIONS as MAX_CORRECTIONS
from oplogd.store.corrections import Correction as Correction
from oplogd.store.corrections import CorrectionResult as CorrectionResult
from oplogd.store.corrections import Corrector as Corrector
