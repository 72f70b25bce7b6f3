"""The subcommands of ``oplogctl token``: tokens for agents that have a key of their application."""
