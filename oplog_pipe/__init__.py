"""oplog-pipe: follows logs, keeps every message in a commit log on disk, and writes it to sinks."""
