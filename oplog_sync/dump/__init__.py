"""Read a dump as rows ``key, timestamp, data, has_parents``, by the rules for operations.

Every format becomes one JSON object per row first, so the rules apply once. An invalid row stays a
row, with the key of no object. Its place and fault need a second read of the dump.
"""
