package oplog

// Version is the version of this package, the same as the agent's.
const Version = "0.1.0"
