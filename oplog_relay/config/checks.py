"""The rules of the settings: ranges, relations and names. No I/O."""

from collections.abc import Collection, Iterator

from oplog_kit.listen import listen_address
from oplog_kit.units import duration_text
from oplog_relay.config.fields import FIELDS, Field, Kind, range_text
from oplog_relay.db import names
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import Limits, RelaySettings
from oplogc.http.address import base_endpoint
from oplogc.topics.messages.names import namespace_name

# An agent may extend a lease without writing it down if it did so less than a twentieth of the
# session ago. With this factor the lease still outlives the heartbeat.
SESSION_FACTOR = 1.1


def check(settings: RelaySettings) -> None:
    """Raise ConfigError, which lists every mistake, if the settings cannot be used."""
    if found := sorted(mistakes(settings)):
        raise ConfigError("\n".join(f"{path}: {sentence}" for path, sentence in found))


def mistakes(settings: RelaySettings, unread: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the path and a sentence for each setting that breaks a rule.

    ``unread``: paths whose values in ``settings`` stand for others that cannot be read.
    """
    if (reason := _name(settings.name)) is not None:
        yield "name", reason
    yield from _agents(settings)
    yield from names.mistakes(settings.database.table)
    outside = {field.path: field for field in FIELDS if not _is_inside(field, settings)}
    for path, field in outside.items():
        yield path, f"must be {range_text(field)}"
    for path, other, sentence in _relations(settings.limits):
        if not {path, other} & {*outside, *unread}:
            yield path, sentence
    if settings.metrics_listen is not None:
        try:
            listen_address(settings.metrics_listen)
        except ValueError as error:
            yield "metrics_listen", str(error)


def _name(name: str) -> str | None:
    try:
        namespace_name(name)
    except ValueError:
        return (
            f"{name!r} must be 1 to 249 ASCII letters, digits, '.', '_' or '-', and not '.' or '..'"
        )
    return None


def _agents(settings: RelaySettings) -> Iterator[tuple[str, str]]:
    if not settings.agents.urls:
        yield "agents.urls", "give the address of an agent, such as http://localhost:8042"
    for url in settings.agents.urls:
        try:
            base_endpoint(url, None)
        except ValueError as error:
            yield "agents.urls", str(error)
    if settings.agents.key_file and not settings.agents.cert_file:
        yield "agents.cert_file", "is missing; key_file is its private key"


def _is_inside(field: Field, settings: RelaySettings) -> bool:
    if field.kind in (Kind.COUNT, Kind.DURATION):
        return bool(field.least <= field.value_in(settings) <= field.most)
    if field.kind is Kind.DURATIONS:
        return all(field.least <= each <= field.most for each in field.value_in(settings))
    return True


def _relations(limits: Limits) -> Iterator[tuple[str, str, str]]:
    """Yield the paths of two settings that do not fit together, and a sentence about the first."""

    def exceed(name: str, other: str) -> tuple[str, str, str]:
        least = duration_text(getattr(limits, other))
        return f"limits.{name}", f"limits.{other}", f"must exceed {other}, which is {least}"

    if limits.heartbeat <= limits.poll:
        yield exceed("heartbeat", "poll")
    if limits.session < round(limits.heartbeat * SESSION_FACTOR, 6):
        path, other, sentence = exceed("session", "heartbeat")
        yield path, other, f"{sentence}, by a tenth or more"
    if limits.mark > limits.in_flight:
        sentence = f"must be at most in_flight, which is {limits.in_flight:,}"
        yield "limits.mark", "limits.in_flight", sentence
    if limits.queue_timeout <= limits.request_timeout:
        yield exceed("queue_timeout", "request_timeout")
    if limits.blocked_backoff[0] > limits.blocked_backoff[1]:
        path = "limits.blocked_backoff"
        yield path, path, "the first pause must be at most the longest"
