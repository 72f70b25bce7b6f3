"""Sinks: where messages go. They know nothing of the engine."""
