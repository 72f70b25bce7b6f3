"""Sinks that are tables of Spark."""
