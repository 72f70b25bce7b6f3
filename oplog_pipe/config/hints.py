"""Ends of sentences that tell a newcomer which setting or value is meant. No I/O."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from oplog_pipe.config import tables
from oplog_pipe.config.fields import Field
from oplogc.terminal.variables import near

# Names that other programs, and people, give to settings. Of several the first one that is known.
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
    "fields": "columns",
    "file": "path",
    "filename": "path",
    "filter": "namespace",
    "filters": "namespace",
    "folder": "dir",
    "headers_file": "headers",
    "host": "agents urls url listen",
    "hosts": "agents urls url",
    "input": "sources",
    "inputs": "sources",
    "interval": "time",
    "key": "id key_file",
    "kind": "type",
    "linger": "time",
    "mapping": "columns",
    "max_messages": "messages",
    "max_retry_time": "retry_for",
    "metrics": "listen",
    "nodes": "urls",
    "on_error": "on_failure",
    "output": "sinks",
    "outputs": "sinks",
    "port": "listen",
    "primary_key": "id",
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
    "target": "sinks table index collection path url",
    "targets": "sinks",
    "tls": "ca_file",
    "token": "api_key password",
    "topic": "log",
    "topics": "log",
    "types": "namespace",
    "uri": "url agents urls",
    "url": "agents urls",
    "urls": "agents url",
    "username": "user",
    "workers": "concurrency",
}
_TYPES: Mapping[str, str] = {
    "elastic": "elasticsearch",
    "es": "elasticsearch",
    "jsonl": "file",
    "mongo": "mongodb",
    "ndjson": "file",
    "pg": "postgres",
    "postgresql": "postgres",
    "rest": "http",
    "stdout": "file",
    "topic": "oplog",
    "webhook": "http",
}
# Settings that others have in one piece.
_BELOW: Mapping[str, str] = {
    "batch_size": "batch: {messages: 1000}",
    "batch_bytes": "batch: {bytes: 1 MB}",
    "batch_timeout": "batch: {time: 100ms}",
    "batch_time": "batch: {time: 100ms}",
    "flush_interval": "batch: {time: 100ms}",
    "max_batch_size": "batch: {messages: 1000}",
}
# Settings that are a part of another one there.
_IN_URL = ("user", "username", "password", "host", "port", "database", "sslmode")


def of_setting(name: str, known: Collection[str]) -> tuple[str, str]:
    """Return the end of the sentence about an unknown setting, and the setting that is meant.

    ``known``: settings of the same mapping. Both are empty if there is nothing to suggest.
    """
    if hint := near(name, known):
        return hint, hint.removeprefix("; did you mean ").removesuffix("?")
    lowered = name.lower().replace("-", "_")
    for meant in (lowered, *_MEANT.get(name, _MEANT.get(lowered, "")).split()):
        if meant in known:
            return f"; did you mean {meant}?", meant
    if name in _IN_URL and "url" in known and "path" not in known:
        return "; it is a part of url", ""
    if name in _BELOW and "batch" in known:
        return f"; give {_BELOW[name]}", ""
    for meant in (name, *_MEANT.get(lowered, "").split()):
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
    meant = _TYPES.get(name.lower())
    return f"; did you mean {meant}?" if meant else near(name.lower(), known)


def _sections() -> Iterator[tuple[str, Sequence[Field]]]:
    yield "the top of the file", tables.PIPE
    yield "each of sources", tables.SOURCE
    yield "each of sinks", tables.SINK
    yield "batch", tables.BATCH
    yield "each of transforms", tables.STEP
    yield "fetch", tables.FETCH
    for kind, fields in tables.TYPES.items():
        yield f"a sink of type {kind}", fields
    yield "a sink of type module:Class", tables.CUSTOM


_NAMES = re.compile(r"[\w/.-]+(?:\s*,\s*[\w/.-]+)+", re.ASCII)


def check_pattern(text: str) -> None:
    """Raise ValueError for a list of names, which would match nothing: no namespace has a comma."""
    if _NAMES.fullmatch(text):
        names = "|".join(re.split(r"\s*,\s*", text))
        raise ValueError(f"{text!r} matches nothing; of several names give ^({names})$")
