"""Commands: flags and their values, variables, help, completion, errors and exit codes."""
