"""MongoDB as the store: many agents append to one log; one of them at a time folds it."""

from oplogd.store.mongo.store import LEASE_SECONDS, MongoStore
from oplogd.store.mongo.timing import Timing

__all__ = ["LEASE_SECONDS", "MongoStore", "Timing"]
