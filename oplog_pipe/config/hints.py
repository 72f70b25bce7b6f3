"""Ends of sentences with the setting or value a newcomer means. No I/O."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import yaml

from oplog_kit.config.fields import Field
from oplog_pipe.config import tables
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.registry import types
from oplogc.terminal.variables import near

# Settings and their names in other programs. Of several settings the first known one is meant. A
# setting of one mapping has its own names: ``Field.hints``.
_NAMES = {
    "agents urls": "url",
    "agents url": "urls",
    "agents urls url": "addresses endpoint endpoints hosts server servers",
    "agents urls url listen": "address host",
    "batch": "batching buffer bulk",
    "ca_file": "ca ssl tls",
    "cert_file": "cert",
    "concurrency": "workers",
    "dead_letter": "dead_letter_queue dead_letters dlq errors",
    "dir": "data_dir directory folder",
    "headers": "headers_file",
    "key_file": "key",
    "listen": "metrics port status",
    "log": "stream topic topics",
    "messages": "bulk_size max_messages size",
    "namespace": "filter filters types",
    "on_failure": "on_error",
    "password": "secret token",
    "password user": "auth",
    "retry_for": "max_retry_time retries retry",
    "sinks": "destinations output outputs target targets",
    "sources": "input inputs",
    "start": "start_from startfrom",
    "time": "interval linger",
    "transforms": "steps",
    "type": "class kind",
    "url": "connection connection_string dsn",
    "url agents urls": "uri",
    "user": "username",
}
# Settings others have in one piece.
_OF_BATCH = {
    "bytes: 1 MB": "batch_bytes",
    "messages: 1000": "batch_size max_batch_size",
    "time: 100ms": "batch_time batch_timeout flush_interval",
}
# Settings in a part of the URL.
_IN_URL = ("user", "username", "password", "host", "port", "database", "sslmode")


def of_setting(
    name: str, node: yaml.Node, known: Collection[str], fields: Sequence[Field]
) -> tuple[str, str]:
    """Implements ``Hint`` of the reader."""
    lowered = name.lower().replace("-", "_")
    others = _meant(lowered, _NAMES).split()
    for meant in (lowered, *_hinted(lowered, fields), *others):
        if meant in known:
            return f"; did you mean {meant}?", meant
    if name in _IN_URL and "url" in known and "path" not in known:
        return "; it is a part of url", ""
    if "batch" in known and (member := _meant(name, _OF_BATCH)):
        return f"; give batch: {{{member}}}", ""
    everywhere = (each for _, fields in _sections() for each in fields)
    for meant in (name, *_hinted(lowered, everywhere), *others):
        found = [place for place, fields in _sections() if any(meant == f.name for f in fields)]
        if found:
            subject = "it" if meant == name else f"did you mean {meant}? It"
            return f"; {subject} belongs to {' or '.join(found[:3])}", ""
    if "name" in known and isinstance(node, yaml.MappingNode):
        return f"; if it is the name, give name: {name} and the settings below it", ""
    return "", ""


def _meant(name: str, table: Mapping[str, str]) -> str:
    return next((meant for meant, names in table.items() if name in names.split()), "")


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
