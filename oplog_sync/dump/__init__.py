"""Read a dump as rows ``key, timestamp, data, has_parents``, by the rules for operations.

Every format becomes one JSON object per row first, so that the rules apply once. An invalid row
stays a row, with a key that no object has, and is counted in the same pass. Its place and its fault
need a second read of the dump, which happens only if there are invalid rows.
"""
