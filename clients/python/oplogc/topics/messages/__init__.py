"""Messages, records, names and snapshots, checked before they leave. No I/O."""
