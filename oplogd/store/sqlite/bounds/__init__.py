"""The bounds in bytes of topics: counting, and removal at the front."""
