"""Status and metrics."""
