"""Collections and indexes, repair, take-over."""
