"""Ends of sentences with the setting or value a newcomer means. No I/O."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from oplog_pipe.config import tables
from oplog_pipe.model.fields import Field
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.registry import types
from oplogc.terminal.variables import near

# Names of settings in other programs. Of several settings the first known one is meant. A setting
# of one mapping has its own names: ``Field.hints``.
_MEANT: Mapping[str, str] = {
    "address": "agents urls url listen",
    "addresses": "agents urls url",
    "auth": "password user",
    "batching": "batch",
    "bulk": "batch",
    "buffer": "batch",
    "bulk_size": "messages",
    "ca": "ca_file",
    "cert": "cert_file",
    "class": "type",
    "connection": "url",
    "connection_string": "url",
    "data_dir": "dir",
    "directory": "dir",
    "dlq": "dead_letter",
    "dead_letter_queue": "dead_letter",
    "dead_letters": "dead_letter",
    "destinations": "sinks",
    "dsn": "url",
    "endpoint": "agents urls url",
    "endpoints": "agents urls url",
    "errors": "dead_letter",
    "filter": "namespace",
    "filters": "namespace",
    "folder": "dir",
    "headers_file": "headers",
    "host": "agents urls url listen",
    "hosts": "agents urls url",
    "input": "sources",
    "inputs": "sources",
    "interval": "time",
    "key": "key_file",
    "kind": "type",
    "linger": "time",
    "max_messages": "messages",
    "max_retry_time": "retry_for",
    "metrics": "listen",
    "on_error": "on_failure",
    "output": "sinks",
    "outputs": "sinks",
    "port": "listen",
    "retries": "retry_for",
    "retry": "retry_for",
    "secret": "password",
    "server": "agents urls url",
    "servers": "agents urls url",
    "size": "messages",
    "ssl": "ca_file",
    "start_from": "start",
    "startFrom": "start",
    "status": "listen",
    "steps": "transforms",
    "stream": "log",
    "target": "sinks",
    "targets": "sinks",
    "tls": "ca_file",
    "token": "password",
    "topic": "log",
    "topics": "log",
    "types": "namespace",
    "uri": "url agents urls",
    "url": "agents urls",
    "urls": "agents url",
    "username": "user",
    "workers": "concurrency",
}
# Settings others have in one piece.
_BELOW: Mapping[str, str] = {
    "batch_size": "batch: {messages: 1000}",
    "batch_bytes": "batch: {bytes: 1 MB}",
    "batch_timeout": "batch: {time: 100ms}",
    "batch_time": "batch: {time: 100ms}",
    "flush_interval": "batch: {time: 100ms}",
    "max_batch_size": "batch: {messages: 1000}",
}
# Settings in a part of the URL.
_IN_URL = ("user", "username", "password", "host", "port", "database", "sslmode")


def of_setting(name: str, known: Collection[str], fields: Sequence[Field]) -> tuple[str, str]:
    """Return the end of the sentence about an unknown setting, and the probable setting.

    ``known``, ``fields``: settings of the same mapping. Both are empty if there is nothing to
    suggest.
    """
    if hint := near(name, known):
        return hint, hint.removeprefix("; did you mean ").removesuffix("?")
    lowered = name.lower().replace("-", "_")
    others = _MEANT.get(name, _MEANT.get(lowered, "")).split()
    for meant in (lowered, *_hinted(lowered, fields), *others):
        if meant in known:
            return f"; did you mean {meant}?", meant
    if name in _IN_URL and "url" in known and "path" not in known:
        return "; it is a part of url", ""
    if name in _BELOW and "batch" in known:
        return f"; give {_BELOW[name]}", ""
    everywhere = (each for _, fields in _sections() for each in fields)
    for meant in (name, *_hinted(lowered, everywhere), *others):
        found = [place for place, fields in _sections() if any(meant == f.name for f in fields)]
        if found:
            subject = "it" if meant == name else f"did you mean {meant}? It"
            return f"; {subject} belongs to {' or '.join(found[:3])}", ""
    return "", ""


def of_type(name: str, known: Collection[str]) -> str:
    """Return the end of the sentence about an unknown type of a sink."""
    module, dot, cls = name.rpartition(".")
    if dot and cls.isidentifier() and module.replace(".", "").isidentifier():
        return f"; did you mean {module}:{cls}?"
    meant = [each.type_name for each in types().values() if name.lower() in each.hints]
    return f"; did you mean {meant[0]}?" if meant else near(name.lower(), known)


def _hinted(name: str, fields: Iterable[Field]) -> Iterator[str]:
    """Yield the settings with this name in other programs."""
    return (each.name for each in fields if name in each.hints)


def _sections() -> Iterator[tuple[str, Sequence[Field]]]:
    yield "the top of the file", tables.PIPE
    yield "each of sources", tables.SOURCE
    yield "each of sinks", tables.SINK
    yield "batch", tables.BATCH
    yield "each of transforms", tables.STEP
    yield "fetch", tables.FETCH
    for kind, options in types().items():
        yield f"a sink of type {kind}", options.settings
    yield "a sink of type module:Class", CustomOptions.settings


_NAMES = re.compile(r"[\w/.-]+(?:\s*,\s*[\w/.-]+)+", re.ASCII)


def check_pattern(text: str) -> None:
    """Raise ValueError for a list of names, which would match nothing: no namespace has a comma."""
    if _NAMES.fullmatch(text):
        names = "|".join(re.split(r"\s*,\s*", text))
        raise ValueError(f"{text!r} matches nothing; of several names give ^({names})$")
