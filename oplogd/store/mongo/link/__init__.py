"""The connection to MongoDB: its errors and quirks, names of collections, leases, fences."""
