"""The headers Accept and Content-Type. No I/O."""

from collections.abc import Collection, Iterator

from oplogd.web.problem import Problem
from oplogd.wording import shortened


def accepts(header: str, media_type: str) -> bool:
    """Return whether an Accept header names ``media_type`` itself.

    A wildcard does not count, nor does ``q=0``.
    """
    return any(name == media_type and quality > 0 for name, quality in _items(header))


def media_type(header: str) -> str:
    """Return the type of a Content-Type header without its parameters."""
    return header.partition(";")[0].strip().lower()


def not_understood(given: str, known: Collection[str]) -> Problem:
    """Return the Problem for a media type that is not one of ``known``. Empty: it is missing."""
    use = f"use {' or '.join(known)}"
    if not given:
        return Problem(415, f"Content-Type is missing; {use}")
    return Problem(415, f"Content-Type {shortened(given)} is not understood; {use}")


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
