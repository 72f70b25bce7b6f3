"""Endpoints of the oplog: intake, stream, page, session."""
