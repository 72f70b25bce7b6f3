"""The process that starts, watches and ends the workers of an agent (decisions/0093)."""
