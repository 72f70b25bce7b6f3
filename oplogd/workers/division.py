"""Divides what the settings give the agent among its workers."""

import dataclasses
from typing import Any

from oplogd.config.settings import Settings
from oplogd.errors import SettingError

# Each worker has an equal part of these settings, and no less than the least value of the flag.
# --ring-size is not among them: the rings of all workers hold the same operations, and
# --ring-bytes bounds their memory.
DIVIDED = {
    "max_queued_events": 1,
    "max_queued_bytes": 65536,
    "max_upload_memory": 65536,
    "ring_bytes": 65536,
    "spool_size": 1 << 20,
}


def divided(settings: Settings, count: int) -> Settings:
    """Return the settings of each of ``count`` workers.

    Raises SettingError if a part would be too small. It names the flags.
    """
    if count == 1:
        return settings
    parts: dict[str, Any] = {}
    faults: list[str] = []
    for name, least in DIVIDED.items():
        if name == "spool_size" and settings.spool is None:
            continue
        total: int = getattr(settings, name)
        parts[name] = total // count
        if parts[name] < least:
            faults.append(
                f"--{name.replace('_', '-')} {total:,} must be at least {count * least:,}"
            )
    if faults:
        raise SettingError(
            f"--workers {count}: each worker gets an equal part of some settings:"
            f" {'; '.join(faults)}"
        )
    return dataclasses.replace(settings, **parts)
