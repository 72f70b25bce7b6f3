"""Rings: the newest entries of a log, encoded once for all consumers, and their views."""
