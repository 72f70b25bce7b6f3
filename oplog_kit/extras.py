"""The extras of the package: libraries for some installations."""

from importlib.util import find_spec


def is_installed(library: str) -> bool:
    """Return whether a library can be imported. Does not import it."""
    return find_spec(library) is not None


def how_to_install(extra: str) -> str:
    """Return the end of a sentence: the command to install an extra."""
    return f"in the checkout of oplog, run: pip install -c constraints.txt '.[{extra}]'"
