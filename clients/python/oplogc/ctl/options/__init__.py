"""Options, arguments and their values."""
