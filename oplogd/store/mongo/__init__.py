"""MongoDB as the store: many agents append to one log; one of them at a time folds it."""

from oplogd.store.mongo.link.timing import Timing
from oplogd.store.mongo.store import LEASE_SECONDS, MongoStore

__all__ = ["LEASE_SECONDS", "MongoStore", "Timing"]
