"""Hashes, signatures and tokens. No I/O."""
