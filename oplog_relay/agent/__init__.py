"""Calls to agents: publishing and the lease."""
