"""Events, lists and tables on stdout."""
