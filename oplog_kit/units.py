"""The units of sizes and durations, in flags, variables and settings files. No I/O."""

import re
from collections.abc import Callable

_SECONDS = {
    "": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0,
}  # fmt: skip
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(ms|[smhdw]|)", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,12}))? ?(?:([kmgt])(?:i?b)?|b)?", re.ASCII)
_PREFIXES = " kmgt"
_MAX_SIZE = (1 << 63) - 1

CENTURY = 36_500 * 86_400.0
"""Seconds. Timers overflow beyond it."""


def duration(
    text: str,
    wanted: str = "",
    fits: Callable[[float], bool] = lambda seconds: True,
) -> float:
    """Return the seconds of a duration such as ``500ms`` or ``2w``. A bare number is seconds.

    ``wanted``: the range in words, such as `` of at least 1s``. Raises ValueError.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = round(float(match[1]) * _SECONDS[match[2]], 9) if match else -1.0
    if not 0 <= seconds <= CENTURY or not fits(seconds):
        raise ValueError(
            f"{text!r} is not a duration{wanted}, such as 500ms, 20s, 10m, 12h, 30d or 2w"
        )
    return seconds


def size(text: str, least: int = 0) -> int:
    """Return the bytes of a size such as ``64KB``, ``64 KiB`` or ``64k``. A bare number is bytes.

    Units are powers of 1,024. A part of a byte is dropped. Raises ValueError.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    found = -1
    if match is not None:
        whole, decimals, prefix = match.groups(default="")
        if prefix or not decimals:
            unit = 1 << 10 * _PREFIXES.index(prefix or " ")
            found = int(whole + decimals) * unit // 10 ** len(decimals)
    if not least <= found <= _MAX_SIZE:
        wanted = f" of at least {least} bytes" if least else ""
        raise ValueError(
            f"{text!r} is not a size{wanted}, such as 10485760, 64KB, 10MB, 1GB or 1TB"
        )
    return found


def duration_text(seconds: float) -> str:
    """Return a duration as a settings file has it, such as ``100ms`` or ``5s``."""
    number, unit = (seconds * 1000, "ms") if 0 < seconds < 1 else (seconds, "s")
    return f"{number:.6f}".rstrip("0").rstrip(".") + unit


def size_text(size: int) -> str:
    """Return bytes as a settings file has them, such as ``64 KB``, ``1 GB`` or ``1001``."""
    for power in (4, 3, 2, 1):
        if size and size % (1 << 10 * power) == 0:
            return f"{size >> 10 * power} {_PREFIXES[power].upper()}B"
    return str(size)


def rough_size(size: float) -> str:
    """Return a number of bytes for people: ``812 bytes``, ``1.2 MB``."""
    if size < 1024:
        return f"{size:,.0f} bytes"
    power = next((power for power in (1, 2, 3) if size < 1 << 10 * (power + 1)), 4)
    return f"{size / (1 << 10 * power):,.1f} {_PREFIXES[power].upper()}B"


def rough_duration(seconds: float) -> str:
    """Return a duration for people: ``850 ms``, ``3.2 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
