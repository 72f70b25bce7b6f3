"""Pointers of foreign transactions as clients use them: publish, store, roll back, report, show."""
