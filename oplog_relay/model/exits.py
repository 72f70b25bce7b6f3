"""The name of the command and its exit codes."""

PROGRAM = "oplog-relay"
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
