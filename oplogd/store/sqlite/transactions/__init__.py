"""Transactions: records, commit, idle groups."""
