"""The SQL of tables that need many lines."""
