"""The clocks of the system, and the guard that compares them."""

from oplogd.clock.clocks import SYSTEM, Clock, boot_seconds, now_ms

__all__ = ["SYSTEM", "Clock", "boot_seconds", "now_ms"]
