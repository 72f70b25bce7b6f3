"""Topics: catalogue, entries, epochs."""
