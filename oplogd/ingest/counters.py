"""Counts of operations by their fate. ``received = ingested + error + discarded + what the queue holds``."""

from dataclasses import dataclass


@dataclass
class Counters:
    received: int = 0
    ingested: int = 0
    error: int = 0
    discarded: int = 0
