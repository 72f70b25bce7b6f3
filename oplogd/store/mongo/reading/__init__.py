"""Reads over topics and decisions."""
