"""Parts of the Store interface."""
