"""Messages as JSON and Avro."""
