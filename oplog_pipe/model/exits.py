"""The name of the command and its exit codes."""

PROGRAM = "oplog-pipe"
EXIT_OK = 0
# Also: a source refuses, the disk is full, the log is damaged.
EXIT_FAILED = 1
EXIT_USAGE = 2
# A sink or a transform did not take messages.
EXIT_SINK = 4
# Messages of a topic are gone, and the source has `on_gap: stop`.
EXIT_GAP = 5
