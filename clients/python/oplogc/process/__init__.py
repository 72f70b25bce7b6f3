"""Threads with an event loop, forks, and the end of the process."""
