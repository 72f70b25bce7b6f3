"""Delivery: from the commit log through transforms to the sinks, with retries and dead letters."""
