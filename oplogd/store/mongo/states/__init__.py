"""States: folding the log, reading pages."""
