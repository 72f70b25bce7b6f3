"""The subcommands of ``oplogctl`` about operations, transactions, pointers and lists."""
