"""The subcommands ``oplogctl status`` and ``oplogctl consumers``."""
