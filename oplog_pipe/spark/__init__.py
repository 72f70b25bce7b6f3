"""The pipe on Spark: a streaming query per sink, whose tasks write with the sinks of the pipe."""
