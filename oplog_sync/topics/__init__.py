"""Topics in the Spark data source ``oplog``: read from a store or through agents, and written."""
