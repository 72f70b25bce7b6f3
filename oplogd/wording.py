"""Words for messages."""


def counted(number: int, noun: str) -> str:
    """Return the number and the noun, with an s unless the number is 1: "1 row", "2,000 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
