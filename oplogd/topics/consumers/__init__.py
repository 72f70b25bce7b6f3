"""Named consumers: the agent keeps their positions."""
