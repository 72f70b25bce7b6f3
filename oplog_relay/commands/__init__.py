"""The subcommands of ``oplog-relay``, a file for each."""
