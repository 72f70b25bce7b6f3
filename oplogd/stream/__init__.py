"""From the log to the consumers: follower, ring, filters, consumers and their phases."""
