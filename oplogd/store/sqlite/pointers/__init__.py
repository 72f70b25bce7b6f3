"""Messages under foreign transactions."""
