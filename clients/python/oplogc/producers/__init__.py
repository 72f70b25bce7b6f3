"""Producers of operations, over UDP and HTTP."""
