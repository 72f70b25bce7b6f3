"""Leases as clients use them: the bodies of requests, and figures."""
