"""HTTP in general: problem documents, negotiation, bodies, methods."""
