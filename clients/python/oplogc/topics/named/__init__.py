"""Named consumers, whose positions are at the agent: their calls and their readers."""
