"""The SQLite file: connection, tables, write-ahead log, room on the disk."""
