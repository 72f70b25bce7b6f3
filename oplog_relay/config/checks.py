"""The rules of the settings: ranges, relations and names. No I/O."""

from collections.abc import Collection, Iterator

from oplog_kit.config.fields import check_value
from oplog_kit.units import duration_text
from oplog_relay.config.tables import sections
from oplog_relay.db import names
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import Limits, RelaySettings

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
    wrong = {*unread}
    for prefix, fields, values in sections(settings):
        for field in fields:
            if (value := values.get(field.name)) is None:
                continue
            try:
                check_value(field, value)
            except ValueError as error:
                wrong.add(f"{prefix}{field.name}")
                yield f"{prefix}{field.name}", str(error)
    if not settings.agents.urls:
        yield "agents.urls", "give the address of an agent, such as http://localhost:8042"
    if settings.agents.key_file and not settings.agents.cert_file:
        yield "agents.cert_file", "is missing; key_file is its private key"
    for path, sentence in names.repeated(settings.database.table):
        if path not in wrong:
            yield path, sentence
    for name, other, sentence in _relations(settings.limits):
        if not {f"limits.{name}", f"limits.{other}"} & wrong:
            yield f"limits.{name}", sentence


def _relations(limits: Limits) -> Iterator[tuple[str, str, str]]:
    """Yield two limits that do not fit together, and a sentence about the first."""

    def exceed(name: str, other: str, by: str = "") -> tuple[str, str, str]:
        least = duration_text(getattr(limits, other))
        return name, other, f"must exceed {other}, which is {least}{by}"

    if limits.heartbeat <= limits.poll:
        yield exceed("heartbeat", "poll")
    if limits.session < round(limits.heartbeat * SESSION_FACTOR, 6):
        yield exceed("session", "heartbeat", ", by a tenth or more")
    if limits.mark > limits.in_flight:
        yield "mark", "in_flight", f"must be at most in_flight, which is {limits.in_flight:,}"
    if limits.queue_timeout <= limits.request_timeout:
        yield exceed("queue_timeout", "request_timeout")
    if limits.blocked_backoff[0] > limits.blocked_backoff[1]:
        name = "blocked_backoff"
        yield name, name, "the first pause must be at most the longest"
