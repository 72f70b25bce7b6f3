"""Transactions as clients use them: begin, write, commit, abort, show."""
