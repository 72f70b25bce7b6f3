"""The agent's settings: a frozen value, and the table of flags that it is read from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

import oplogd
from oplog_kit.command import convert
from oplog_kit.command.convert import Secret
from oplog_kit.command.flags import Flag, flags_of, secret, setting
from oplog_kit.command.given import Given
from oplog_kit.command.settings import SettingsCommand
from oplog_kit.extras import how_to_install, is_installed
from oplog_kit.listen import Address
from oplogd.config import values
from oplogd.config.store_settings import StoreSettings

_ABOUT = (
    "Receive operations on objects over UDP and HTTP, keep them in a log, and stream them to"
    " consumers."
)
# Without --listen.
LOCAL = Address("localhost", 8042)

_NOTES = """\
Each value comes from its flag, else from its variable, else it is the default. \
An empty variable is not set. An unknown variable that begins with OPLOGD_ is refused.

SIZE is a number of bytes, or a number with a unit: 10485760, 10MB, 10MiB, 64k, 1G. \
Units are powers of 1024.

DURATION is a number of seconds, or a number with a unit: 30, 30s, 500ms, 10m, 12h, 30d, 2w.

The variable of a flag without a value is 1, true, yes or on; or 0, false, no or off.

Exit codes: 0 stopped in order, 1 failed, 2 a bad setting, 3 stopped before all was stored or all \
streams had ended."""


@dataclass(frozen=True, kw_only=True)
class Settings(StoreSettings):
    """The settings of an agent. Sizes are in bytes, durations in seconds."""

    password: Secret | None = secret(
        "Passwords and TLS", "--password", "PASSWORD", Secret,
        "Password for following streams and for reading topics. Not set, or empty: none required.",
    )  # fmt: skip
    ingest_password: Secret | None = secret(
        "Passwords and TLS", "--ingest-password", "PASSWORD", Secret,
        "Password for sending over HTTP, and for creating, changing and deleting topics. Not set,"
        " or empty: none required. See --udp-listen.",
    )  # fmt: skip
    tls_certificate: Path | None = setting(
        "Passwords and TLS", "--tls-certificate", "PATH", None, values.readable,
        "Serve HTTPS with this certificate chain (PEM). Needs --tls-key.",
    )  # fmt: skip
    tls_key: Path | None = setting(
        "Passwords and TLS", "--tls-key", "PATH", None, values.readable,
        "Private key of the certificate (PEM). Needs --tls-certificate.",
    )  # fmt: skip
    max_queued_events: int = setting(
        "Limits", "--max-queued-events", "N", "100000", convert.count(1),
        "Maximum number of operations that wait to be stored (the queue), at least 1. When the "
        "queue is full, UDP drops operations and HTTP answers 503. Messages of topics have a queue "
        "of the same size.",
    )  # fmt: skip
    max_queued_bytes: int = setting(
        "Limits", "--max-queued-bytes", "SIZE", "64MB", convert.size(65536),
        "Maximum size of the queue in memory, at least 64KB. Messages have a queue of the"
        " same size, and so have fenced operations and the records of transactions that wait for"
        " the store.",
    )  # fmt: skip
    max_body_size: int = setting(
        "Limits", "--max-body-size", "SIZE", "16MB", convert.size(1),
        "Maximum size of the body of an HTTP request after decompression, at least 1 byte.",
    )  # fmt: skip
    max_upload_memory: int = setting(
        "Limits", "--max-upload-memory", "SIZE", "64MB", convert.size(65536),
        "Memory for all bodies that are being received and decoded, compressed and "
        "decompressed, at least 64KB. Above it HTTP answers 503, except to bodies up to 64KB, which"
        " have a sixteenth of it in reserve. Bodies of polls have an eighth of it besides, at least"
        " 4MB.",
    )  # fmt: skip
    max_header_size: int = setting(
        "Limits", "--max-header-size", "SIZE", "64KB", convert.size(1024),
        "Maximum size of the URL and headers of an HTTP request, at least 1KB. Above it "
        "HTTP answers 431.",
    )  # fmt: skip
    header_timeout: float = setting(
        "Limits", "--header-timeout", "DURATION", "10s", convert.some_time,
        "How long the headers of an HTTP request may take to arrive, more than 0. Then HTTP"
        " answers 408.",
    )  # fmt: skip
    body_timeout: float = setting(
        "Limits", "--body-timeout", "DURATION", "30s", convert.some_time,
        "Longest pause within the body of an HTTP request, more than 0. A body that takes "
        "longer than this in total must arrive at 4 KB per second at least. Otherwise HTTP "
        "answers 408.",
    )  # fmt: skip
    max_clients: int = setting(
        "Limits", "--max-clients", "N", "10000", convert.count(1),
        "Consumers that may follow at the same time, at least 1.",
    )  # fmt: skip
    max_clients_per_address: int = setting(
        "Limits", "--max-clients-per-address", "N", "0", convert.count(0),
        "Consumers that may follow at the same time from one IP address. Above it HTTP "
        "answers 429. 0: no limit.",
    )  # fmt: skip
    max_filter_values: int = setting(
        "Limits", "--max-filter-values", "N", "1000", convert.count(1),
        "Types and parents that the filter of one consumer may list together, at least 1. Above it"
        " HTTP answers 400.",
    )  # fmt: skip
    ring_size: int = setting(
        "Streams", "--ring-size", "N", "65536", convert.count(16),
        "Maximum number of operations in memory for consumers (the ring), at least 16. Slower "
        "consumers read from the store.",
    )  # fmt: skip
    ring_bytes: int = setting(
        "Streams", "--ring-bytes", "SIZE", "64MB", convert.size(65536),
        "Maximum size of the ring, at least 64KB. The rings of all topics together may have the"
        " same again.",
    )  # fmt: skip
    heartbeat: float = setting(
        "Streams", "--heartbeat", "DURATION", "20s", values.heartbeat,
        "Longest silence on a stream before a heartbeat is sent, more than 0 and at most 25s.",
    )  # fmt: skip
    max_connection_age: float = setting(
        "Streams", "--max-connection-age", "DURATION|0", "0", convert.time_or_0,
        "End a stream at about this age, so that its consumer reconnects. 0: never.",
    )  # fmt: skip
    stall_timeout: float = setting(
        "Streams", "--stall-timeout", "DURATION|0", "5m", convert.time_or_0,
        "Cut off a consumer that takes no byte for this time while its connection is full. "
        "It can reconnect and resume. The same holds for a client that does not take an answer. "
        "0: never.",
    )  # fmt: skip
    object_url: str | None = setting(
        "Streams", "--object-url", "TEMPLATE", None, values.object_url,
        "URL of an object, sent to consumers as ref. Must contain {{id}}, may contain {{type}}.",
        empty_is_unset=True,
    )  # fmt: skip
    shutdown_timeout: float = setting(
        "Process", "--shutdown-timeout", "DURATION", "30s", convert.some_time,
        "How long a stop may take to store queued operations and to end the streams, more than 0.",
    )  # fmt: skip
    log_format: Literal["text", "json"] = setting(
        "Process", "--log-format", "text|json", "text", values.log_format,
        "Write log lines for people (text), or one JSON object per line.",
    )  # fmt: skip
    debug: bool = setting(
        "Process", "--debug", None, "false", convert.switch,
        "Log more.",
    )  # fmt: skip

    @property
    def http_address(self) -> Address:
        """Return the address to listen on for HTTP: that of --listen, else LOCAL."""
        return self.listen or LOCAL

    @property
    def udp_address(self) -> Address | None:
        """Return the address to listen on for UDP, or None if UDP is off.

        Without --udp-listen it has the port of HTTP. If that is 0, take the port that HTTP got.
        """
        if self.udp_listen == "off":
            return None
        if self.udp_listen is not None:
            return self.udp_listen
        http = self.http_address
        return http if self.ingest_password is None else http.loopback()


def command() -> SettingsCommand[Settings]:
    return SettingsCommand(
        "oplogd",
        Settings,
        _check,
        version=oplogd.__version__,
        about=_ABOUT,
        notes=_NOTES,
    )


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Read the settings as `SettingsCommand.parse` does."""
    return command().parse(argv, environ)


def flag_table() -> tuple[Flag, ...]:
    """Return every flag that is a setting, in the order of the help."""
    return flags_of(Settings)


_MONGO_URL = ("--mongo-url", "--mongo-url-file")


def _check(given: Given) -> None:
    given.refuse_together(["--store"], _MONGO_URL)
    given.require("--spool", *_MONGO_URL)
    given.require("--tls-certificate", "--tls-key")
    given.require("--tls-key", "--tls-certificate")
    for source in (given.sources[name] for name in _MONGO_URL if name in given.sources):
        if not is_installed("pymongo"):
            raise click.UsageError(f"{source}: PyMongo is not installed; {how_to_install('mongo')}")
