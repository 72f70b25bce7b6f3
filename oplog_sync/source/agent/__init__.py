"""The oplog through its agents."""
