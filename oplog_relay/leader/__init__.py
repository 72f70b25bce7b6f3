"""A term of the leader: rows from the outbox to the agent, in order per key."""
