"""Settings: flags, variables, values, and what they become."""
