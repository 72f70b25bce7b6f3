"""Numbers for the settings behind the place of each row. No I/O."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from oplog_pipe.model.settings import FunctionStep, SinkSettings, SourceSettings

# Stored numbers are of all these names, whatever the type of the sink.
_PLACES = ("table", "database", "collection", "index", "id", "columns", "path", "log", "target")

_SOURCE = "source "


def former_sources(numbers: Iterable[str]) -> set[str]:
    """Return the names of the sources among the parts of settings."""
    return {each.removeprefix(_SOURCE) for each in numbers if each.startswith(_SOURCE)}


def fingerprints(sink: SinkSettings, sources: Sequence[SourceSettings]) -> dict[str, int]:
    """Return a number for each part of the settings: 48 bits."""
    steps = [
        (each.namespace, each.function if isinstance(each, FunctionStep) else "fetch")
        for each in sink.transforms
    ]
    options = sink.options
    places = dict.fromkeys(_PLACES) | {name: getattr(options, name) for name in options.identity}
    parts: dict[str, Any] = {
        "namespace": sink.namespace,
        "transforms": steps,
        "target": (options.type_name or sink.type, places),
    }
    if sink.select is not None:
        parts["select"] = (sink.select, [(each.name, each.path) for each in sink.tables])
    parts |= {f"{_SOURCE}{each.name}": (each.log, each.namespace) for each in sources}
    return {name: _number(value) for name, value in parts.items()}


def _number(value: Any) -> int:
    encoded = msgspec.json.encode(value, order="sorted")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=6).digest(), "big")
