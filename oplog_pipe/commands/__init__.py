"""The subcommands of ``oplog-pipe``, a file for each."""
