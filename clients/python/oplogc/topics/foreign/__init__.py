"""Publishing under the write pointer of a foreign transaction, and reading with its snapshot."""
