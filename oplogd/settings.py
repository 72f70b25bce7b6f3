"""The agent's settings: a frozen value, and the table of flags it is read from.

The fields of `Settings` are the table: name, form, default and help stand there and nowhere else.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oplogd import values
from oplogd.values import Address, Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One row of the table. `default` is the text one would type; None means not set."""

    name: str
    metavar: str | None  # None: a switch
    default: str | None
    help: str
    convert: Callable[[str], Any]
    empty_is_unset: bool = False

    @property
    def variable(self) -> str:
        return "OPLOGD_" + self.name.removeprefix("--").replace("-", "_").upper()


def _field(
    name: str,
    metavar: str | None,
    default: str | None,
    convert: Callable[[str], Any],
    help: str,
    *,
    empty_is_unset: bool = False,
) -> Any:
    """A setting with its flag; its default is what the flag makes of the default's text."""
    flag = Flag(
        name=name,
        metavar=metavar,
        default=default,
        help=help,
        convert=convert,
        empty_is_unset=empty_is_unset,
    )
    value = None if default is None else convert(default)
    return dataclasses.field(default=value, metadata={"flags": (flag,)})


def _secret(name: str, metavar: str, help: str) -> Any:
    """A secret with two flags: its value, or a file that holds it."""
    in_file = f"The same from a file, less one newline at its end. Excludes {name}."
    given = Flag(
        name=name, metavar=metavar, default=None, help=help, convert=Secret, empty_is_unset=True
    )
    file = Flag(
        name=f"{name}-file",
        metavar="PATH",
        default=None,
        help=in_file,
        convert=values.secret_in_file,
    )
    return dataclasses.field(default=None, metadata={"flags": (given, file)})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings as `parse` reads them. Sizes are in bytes, durations in seconds."""

    listen: Address = _field(
        "--listen",
        "ADDRESS",
        ":8042",
        values.address,
        "Where to serve HTTP: :PORT for all interfaces, HOST:PORT or [IPV6]:PORT. Port 0 takes a free one.",
    )
    udp_listen: Address | Literal["off"] | None = _field(
        "--udp-listen",
        "ADDRESS|off",
        None,
        values.udp_address,
        "Where to take operations over UDP, in the same forms, or off. Not set: the address of --listen; with"
        " an ingest password, which cannot guard UDP, the loopback address with the port of --listen.",
    )
    store: Path = _field(
        "--store",
        "PATH",
        "oplog.db",
        values.path,
        "The SQLite file that holds the log. Created when missing.",
    )
    mongo_url: Secret | None = _field(
        "--mongo-url",
        "URL",
        None,
        values.mongo_url,
        "Keep the log in MongoDB, at mongodb://... or mongodb+srv://... Excludes --store.",
        empty_is_unset=True,
    )
    log_collection: Literal["capped", "plain"] = _field(
        "--log-collection",
        "capped|plain",
        "capped",
        values.log_collection,
        "How MongoDB keeps the log: in a capped collection, or in an ordinary one that the agents trim, for services"
        " without capped collections.",
    )
    lease: float = _field(
        "--lease",
        "DURATION",
        "5s",
        values.lease,
        "How long the agent that folds MongoDB's log into the states may be silent before another one takes over, at least"
        " 100ms. Give all agents the same; where they differ, the longer one counts.",
    )
    spool: Path | None = _field(
        "--spool",
        "PATH",
        None,
        values.path,
        "Keep operations that come by UDP while MongoDB is away in this SQLite file. Not set: in memory only.",
        empty_is_unset=True,
    )
    spool_size: int = _field(
        "--spool-size",
        "SIZE",
        "1GB",
        values.size(1 << 20),
        "How large the spool may grow, at least 1MB.",
    )
    capped_collection_size: int | None = _field(
        "--capped-collection-size",
        "SIZE",
        None,
        values.size(4096),
        "How large the log may grow before its oldest operations go, at least 4096 bytes. Not set: a store"
        " keeps the size it has, a new one gets 256MB.",
    )
    object_url: str | None = _field(
        "--object-url",
        "TEMPLATE",
        None,
        values.object_url,
        "URL of an object, sent to consumers as ref. Must contain {{id}}, may contain {{type}}.",
        empty_is_unset=True,
    )
    password: Secret | None = _secret(
        "--password",
        "PASSWORD",
        "Password for following the stream. Not set, or empty: none required.",
    )
    ingest_password: Secret | None = _secret(
        "--ingest-password",
        "PASSWORD",
        "Password for sending over HTTP. Not set, or empty: none required. See --udp-listen.",
    )
    allowed_hosts: frozenset[str] | None = _field(
        "--allowed-hosts",
        "NAMES",
        None,
        values.host_names,
        "Names of this agent, comma-separated, under which web pages may send operations without an ingest password."
        " localhost and IP addresses need not be listed. Not set: none.",
        empty_is_unset=True,
    )
    max_queued_events: int = _field(
        "--max-queued-events",
        "N",
        "100000",
        values.count(1),
        "Operations that may wait to be stored, at least 1. Beyond it UDP drops them and HTTP answers 503.",
    )
    max_queued_bytes: int = _field(
        "--max-queued-bytes",
        "SIZE",
        "64MB",
        values.size(65536),
        "The same bound in memory, at least 64KB.",
    )
    max_body_size: int = _field(
        "--max-body-size",
        "SIZE",
        "16MB",
        values.size(1),
        "The largest body of an HTTP request, after decompression, at least 1 byte.",
    )
    max_upload_memory: int = _field(
        "--max-upload-memory",
        "SIZE",
        "64MB",
        values.size(65536),
        "Memory for all bodies that are being received and decoded, compressed and decompressed, at least 64KB. Beyond"
        " it HTTP answers 503.",
    )
    max_header_size: int = _field(
        "--max-header-size",
        "SIZE",
        "64KB",
        values.size(1024),
        "The largest URL and headers of an HTTP request, at least 1KB. Beyond it HTTP answers 431.",
    )
    header_timeout: float = _field(
        "--header-timeout",
        "DURATION",
        "10s",
        values.some_time,
        "How long the headers of an HTTP request may take to arrive, more than 0. Then HTTP answers 408.",
    )
    body_timeout: float = _field(
        "--body-timeout",
        "DURATION",
        "30s",
        values.some_time,
        "The longest pause within the body of an HTTP request, more than 0. A body that takes longer than this in total"
        " must arrive at 4 KB per second. Otherwise HTTP answers 408.",
    )
    max_clients: int = _field(
        "--max-clients",
        "N",
        "10000",
        values.count(1),
        "Consumers that may follow at once, at least 1.",
    )
    max_clients_per_address: int = _field(
        "--max-clients-per-address",
        "N",
        "0",
        values.count(0),
        "Consumers that may follow at once from one IP address. Beyond it HTTP answers 429. 0: no limit.",
    )
    ring_size: int = _field(
        "--ring-size",
        "N",
        "65536",
        values.count(16),
        "Operations kept in memory for consumers, at least 16. Slower consumers read from the store.",
    )
    ring_bytes: int = _field(
        "--ring-bytes",
        "SIZE",
        "64MB",
        values.size(65536),
        "The same bound in memory, at least 64KB.",
    )
    shutdown_timeout: float = _field(
        "--shutdown-timeout",
        "DURATION",
        "30s",
        values.some_time,
        "How long a stop may take to store what is queued and to end the streams, more than 0.",
    )
    heartbeat: float = _field(
        "--heartbeat",
        "DURATION",
        "20s",
        values.heartbeat,
        "The longest silence on a stream before a heartbeat is sent, more than 0 and at most 25s.",
    )
    max_connection_age: float = _field(
        "--max-connection-age",
        "DURATION|0",
        "0",
        values.time_or_0,
        "End a stream at about this age, so that its consumer reconnects. 0: never.",
    )
    stall_timeout: float = _field(
        "--stall-timeout",
        "DURATION|0",
        "5m",
        values.time_or_0,
        "Cut off a consumer that takes no byte for this time while its connection is full. It can reconnect and resume."
        " 0: never.",
    )
    tombstone_retention: float = _field(
        "--tombstone-retention",
        "DURATION|0",
        "0",
        values.time_or_0,
        "How long to remember deleted objects. A consumer that was away longer starts anew. 0: for ever.",
    )
    new_epoch: bool = _field(
        "--new-epoch",
        None,
        "false",
        values.switch,
        "Set the log aside, begin a new one from the states and exit; every consumer then starts anew. Mends a"
        " log whose time is far ahead of the clock. The agent must not run meanwhile.",
    )
    debug: bool = _field("--debug", None, "false", values.switch, "Log more.")
    log_format: Literal["text", "json"] = _field(
        "--log-format",
        "text|json",
        "text",
        values.log_format,
        "Log lines for people, or one JSON object a line.",
    )
    tls_certificate: Path | None = _field(
        "--tls-certificate",
        "PATH",
        None,
        values.readable,
        "Serve HTTPS with this certificate chain (PEM). Needs --tls-key.",
    )
    tls_key: Path | None = _field(
        "--tls-key",
        "PATH",
        None,
        values.readable,
        "The certificate's private key (PEM). Needs --tls-certificate.",
    )

    @property
    def udp_address(self) -> Address | None:
        """Return the address to listen on for UDP, None for none.

        Without --udp-listen it has the port of --listen. If that is 0, take the port that HTTP got.
        """
        if self.udp_listen == "off":
            return None
        if self.udp_listen is not None:
            return self.udp_listen
        return self.listen if self.ingest_password is None else self.listen.loopback()


def flag_table() -> tuple[Flag, ...]:
    """Every flag that is a setting, in the order of the help; --help and --version are not among them."""
    return tuple(flag for field in dataclasses.fields(Settings) for flag in field.metadata["flags"])
