"""What several sinks share: places, owners, lines, requests."""
