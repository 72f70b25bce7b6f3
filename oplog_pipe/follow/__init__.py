"""Sources: each follows a log and records its entries in the commit log."""
