"""The log of operations and the states."""
