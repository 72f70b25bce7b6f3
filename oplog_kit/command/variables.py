"""Refuses environment variables that have the program's prefix and belong to no flag."""

import difflib
import re
from collections.abc import Mapping, Sequence

from oplog_kit.command.flags import Flag


def refuse_unknown_variables(environ: Mapping[str, str], flags: Sequence[Flag]) -> None:
    """Raise ValueError for a variable that has the program's prefix and belongs to no flag.

    Empty variables count as not set. Variables of Kubernetes' service links are ignored.
    """
    known = {flag.variable: flag for flag in flags}
    prefix = f"{flags[0].program}_".replace("-", "_").upper()
    for name in sorted(environ):
        if not name.startswith(prefix) or name in known or not environ[name]:
            continue
        if _is_service_link(name, environ[name]):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"unknown variable {name}{hint}")


# A Service named oplogd sets these in the pods of its namespace: see "Environment variables" in the
# documentation of Kubernetes' Services. The value must fit, too: OPLOGD_PORT=8042 is a mistake.
_SERVICE_LINKS = tuple(
    (re.compile(rf"[A-Z0-9_]+_{name}", re.ASCII), re.compile(value, re.ASCII))
    for name, value in (
        (r"SERVICE_HOST", r"[0-9a-fA-F.:]+"),
        (r"SERVICE_PORT(_[A-Z0-9_]+)?", r"\d{1,5}"),
        (r"PORT(_\d{1,5}_(TCP|UDP|SCTP))?", r"(tcp|udp|sctp)://\S+:\d{1,5}"),
        (r"PORT_\d{1,5}_(TCP|UDP|SCTP)_PROTO", r"tcp|udp|sctp"),
        (r"PORT_\d{1,5}_(TCP|UDP|SCTP)_PORT", r"\d{1,5}"),
        (r"PORT_\d{1,5}_(TCP|UDP|SCTP)_ADDR", r"[0-9a-fA-F.:]+"),
    )
)


def _is_service_link(name: str, value: str) -> bool:
    return any(
        shape.fullmatch(name) and content.fullmatch(value) for shape, content in _SERVICE_LINKS
    )
