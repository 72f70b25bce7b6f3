"""Numbers and durations for people. No I/O."""


def seconds(number: float) -> str:
    """Return a duration for people: ``850 ms``, ``3.2 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if number < 1:
        return f"{number * 1000:.0f} ms"
    if number < 60:
        return f"{number:.1f} s"
    minutes, rest = divmod(int(number), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def duration_text(seconds: float) -> str:
    """Return a duration as a settings file has it, such as ``100ms`` or ``5s``."""
    number, unit = (seconds * 1000, "ms") if 0 < seconds < 1 else (seconds, "s")
    return f"{number:.6f}".rstrip("0").rstrip(".") + unit


def size_text(size: int) -> str:
    """Return bytes as a settings file has them, such as ``64 KB``, ``1 GB`` or ``1001``."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return str(size)
