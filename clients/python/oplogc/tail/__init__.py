"""The command ``oplog-tail``: follow an agent in the terminal."""
