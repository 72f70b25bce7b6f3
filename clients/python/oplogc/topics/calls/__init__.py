"""Requests to agents, and the meaning of their answers."""
