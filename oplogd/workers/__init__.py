"""Several processes that work as one agent (decisions/0093)."""
