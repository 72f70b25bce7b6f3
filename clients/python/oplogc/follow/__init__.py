"""Consumers: the stream, its position, and the file with the position."""
