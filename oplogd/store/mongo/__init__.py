"""MongoDB as the store: many agents append to one log; one of them at a time folds it.

Parts of this package raise PyMongo's errors and StoreUnavailableError. The store translates them.
"""

from oplogd.store.mongo.link.timing import Timing
from oplogd.store.mongo.store import LEASE_SECONDS, MongoStore

__all__ = ["LEASE_SECONDS", "MongoStore", "Timing"]
