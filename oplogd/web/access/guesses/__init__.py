"""Limits of guesses. No I/O."""
