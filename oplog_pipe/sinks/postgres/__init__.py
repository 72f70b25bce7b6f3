"""The sink for PostgreSQL, through psycopg 3."""

from oplog_pipe.sinks.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
