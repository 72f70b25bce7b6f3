"""Transactions in MongoDB."""
