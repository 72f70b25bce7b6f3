"""What tasks of Spark do for a sink: filter, change, write, and tell the driver."""
