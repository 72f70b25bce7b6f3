"""Figures, metrics, and the log of a relay's life."""
