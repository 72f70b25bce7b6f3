"""Transactions over topics and the oplog."""
