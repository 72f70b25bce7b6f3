"""Parts that the commands oplog-relay and oplog-pipe share."""
