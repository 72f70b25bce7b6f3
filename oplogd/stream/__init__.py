"""From the log to the consumers: follower, ring, filters, replication and the one SSE generator."""
