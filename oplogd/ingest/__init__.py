"""Intake by UDP and HTTP, the bounded queue, the writer, the spool."""
