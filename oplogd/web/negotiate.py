"""The headers Accept and Content-Type. No I/O."""

from collections.abc import Iterator


def accepts(header: str, media_type: str) -> bool:
    """Return whether an Accept header names ``media_type`` itself.

    A wildcard does not count, nor does ``q=0``.
    """
    return any(name == media_type and quality > 0 for name, quality in _items(header))


def media_type(header: str) -> str:
    """Return the type of a Content-Type header without its parameters."""
    return header.partition(";")[0].strip().lower()


def _items(header: str) -> Iterator[tuple[str, float]]:
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        yield name, quality
