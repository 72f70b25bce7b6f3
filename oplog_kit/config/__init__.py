"""Settings files in YAML: tables of settings, their values with lines, and all mistakes at once."""
