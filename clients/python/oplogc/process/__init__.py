"""Threads with an event loop, waiting tasks, forks, and the end of the process."""
