"""Waiting messages, and the tasks to send them."""
