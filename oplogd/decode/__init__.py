"""Bytes of requests to values: bounded JSON, bodies, media types. No I/O."""
