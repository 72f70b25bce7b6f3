"""MongoDB as the store: a log that many agents append to, folded into states by one of them at a time."""

from oplogd.store.mongo.store import LEASE_SECONDS, MongoStore

__all__ = ["LEASE_SECONDS", "MongoStore"]
