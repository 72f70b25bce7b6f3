"""Environment variables of the commands, and similar words. No I/O."""

import difflib
import re
from collections.abc import Collection, Mapping

# Kubernetes sets these in a pod beside a Service with the name of a command.
_SERVICE_LINK = re.compile(
    r"\w+(_SERVICE_HOST=[0-9a-fA-F.:]+|_SERVICE_PORT(_\w+)?=\d{1,5}"
    r"|_PORT(_\d+_[A-Z]+)?=[a-z]+://\S+:\d{1,5}|_PORT_\d+_[A-Z]+_(PROTO|PORT|ADDR)=[\w.:]+)",
    re.ASCII,
)


def unknown_variable(environ: Mapping[str, str], prefix: str, known: Collection[str]) -> str:
    """Return a sentence on an unknown variable with this prefix. Empty: all are known."""
    for name in sorted(environ):
        if not name.startswith(prefix) or name in known or not environ[name]:
            continue
        if not _SERVICE_LINK.fullmatch(f"{name}={environ[name]}"):
            return f"unknown variable {name}{near(name, known)}"
    return ""


def near(name: str, known: Collection[str]) -> str:
    """Return the end of a sentence with the most similar name, or nothing."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return f"; did you mean {found[0]}?" if found else ""
