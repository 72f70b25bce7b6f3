"""Metrics, the HTTP server for them, progress."""
