"""The subcommands of ``oplogctl topic``."""
