"""Messages under pointers in MongoDB."""
