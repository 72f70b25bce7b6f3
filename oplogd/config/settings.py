"""The agent's settings: a frozen value, and its table of flags."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from oplog_kit.command import convert
from oplog_kit.command.convert import Secret
from oplog_kit.command.flags import secret, secrets, setting
from oplog_kit.listen import Address
from oplogd.config import values
from oplogd.config.secret_files import SecretFile, password_file, secret_file

# Without --listen.
LOCAL = Address("localhost", 8042)

# The subjects of the help.
_network = partial(setting, "Network")
_store = partial(setting, "Store")
_topics = partial(setting, "Topics")
_transactions = partial(setting, "Transactions")
_mongo = partial(setting, "MongoDB")
_tls = partial(setting, "Passwords and TLS")
_limits = partial(setting, "Limits")
_streams = partial(setting, "Streams")
_process = partial(setting, "Process")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of an agent. Sizes are in bytes, durations in seconds."""

    listen: Address | None = _network("--listen", "ADDRESS", None, values.address,
        "Serve HTTP at this address: :PORT for all interfaces, HOST:PORT or [IPV6]:PORT. "
        "Port 0 takes a free port. Not set: localhost:8042, for programs on this machine only.",
    )  # fmt: skip
    udp_listen: Address | Literal["off"] | None = _network(
        "--udp-listen", "ADDRESS|off", None, values.udp_address,
        "Receive operations over UDP at this address, in the same forms, or off. Not set: "
        "the address of --listen. With an ingest password, --rights or --token-key, which cannot "
        "guard UDP, it is the loopback address with the port of --listen.",
    )  # fmt: skip
    allowed_hosts: frozenset[str] | None = _network(
        "--allowed-hosts", "NAMES", None, values.host_names,
        "Names of this agent, comma-separated, under which web pages may send operations "
        "without an ingest password. localhost and IP addresses need not be listed. Not "
        "set: none.",
        empty_is_unset=True,
    )  # fmt: skip
    store: Path = _store("--store", "PATH", "oplog.db", values.path,
        "SQLite file that holds the log. Created if it is missing. Excludes --mongo-url.",
    )  # fmt: skip
    capped_collection_size: int | None = _store(
        "--capped-collection-size", "SIZE", None, convert.size(4096),
        "Maximum size of the log, at least 4096 bytes. A full log drops its oldest "
        "operations. Not set: an existing store keeps its size, a new one gets 256MB.",
    )  # fmt: skip
    disk_reserve: int | None = _store("--disk-reserve", "SIZE", None, convert.size(0),
        "Size of the file beside the SQLite file that holds room on the disk. It is removed when"
        " the disk is full, so that topics can still be deleted. 0: none. At most a quarter of"
        " the disk. Not set: a sixteenth of it, at most 64MB.",
    )  # fmt: skip
    tombstone_retention: float = _store(
        "--tombstone-retention", "DURATION|0", "0", convert.time_or_0,
        "How long to remember deleted objects. A consumer that was disconnected for longer "
        "replicates all objects again. 0: for ever.",
    )  # fmt: skip
    new_epoch: bool = _store("--new-epoch", None, "false", convert.switch,
        "Set the log aside, begin a new one from the states and exit. Every consumer then "
        "replicates all objects again. Repairs a store whose times are far ahead of the clock, "
        "topics included. Stop the agent first.",
    )  # fmt: skip
    topic_ttl: int | None = _topics("--topic-ttl", "DURATION", None, values.whole_seconds,
        "Time to live of messages in topics without one of their own, at least 1s, in whole"
        " seconds. Not set: an existing store keeps its value, a new one gets 7d.",
    )  # fmt: skip
    topics_max_bytes: int | None = _topics(
        "--topics-max-bytes", "SIZE|0", None, convert.size_or_0(1 << 20),
        "Maximum size of the messages of all topics together, at least 1MB. Above it the oldest"
        " messages leave. 0: no bound. Not set: an existing store keeps its value, a new one has"
        " none.",
    )  # fmt: skip
    topic_cleanup: float = _topics("--topic-cleanup", "DURATION", "1h", convert.some_time,
        "How often messages that have expired are removed from the store, and the commit logs of"
        " idle groups deleted, more than 0. No reader gets expired messages even before that.",
    )  # fmt: skip
    poll_limit: int = _topics("--poll-limit", "N", "1000", convert.count(1),
        "Most messages in the answer to a poll, at least 1. A poll that asks for more gets this"
        " many.",
    )  # fmt: skip
    txn_max_records: int = _transactions("--txn-max-records", "N", "100000", convert.count(1),
        "Most records of a transaction, at least 1. Also the most messages that are stored under a"
        " pointer in a topic and not yet published.",
    )  # fmt: skip
    txn_max_bytes: int = _transactions("--txn-max-bytes", "SIZE", "64MB", convert.size(1),
        "Maximum size of the records of a transaction, at least 1 byte. Also that of the messages"
        " that are stored under a pointer in a topic and not yet published.",
    )  # fmt: skip
    pointer_timeout: int = _transactions(
        "--pointer-timeout", "DURATION", "15m", values.pointer_timeout,
        "How long the pointer of a foreign transaction stays open in a topic after its first"
        " publish, or after its last store if nothing is published, unless its owner reports commit"
        " or abort. Then it counts as aborted. At least 1s and at most 30d, in whole seconds.",
    )  # fmt: skip
    mongo_url: Secret | None = secret("MongoDB", "--mongo-url", "URL", convert.mongo_url,
        "Keep the log in MongoDB, at mongodb://... or mongodb+srv://... Other users see a URL on"
        " the command line: prefer the variable or --mongo-url-file. Needs PyMongo, which the"
        " extra `mongo` installs. Excludes --store.",
    )  # fmt: skip
    log_collection: Literal["capped", "plain"] = _mongo(
        "--log-collection", "capped|plain", "capped", convert.log_collection,
        "How MongoDB keeps the log: in a capped collection, or in a plain one that the "
        "agents trim, for services without capped collections.",
    )  # fmt: skip
    lease: float = _mongo("--lease", "DURATION", "5s", values.lease,
        "How long the agent that folds MongoDB's log into the states may be silent before "
        "another one takes over, at least 100ms. Give all agents the same value. If values "
        "differ, the longer one counts.",
    )  # fmt: skip
    spool: Path | None = _mongo("--spool", "PATH", None, values.path,
        "SQLite file that keeps operations received over UDP while MongoDB is unreachable. Workers"
        " besides the first add .worker-1 and so on. Not set: in memory only. Needs --mongo-url.",
        empty_is_unset=True,
    )  # fmt: skip
    spool_size: int = _mongo("--spool-size", "SIZE", "1GB", convert.size(1 << 20),
        "Maximum size of the spool, at least 1MB. Workers have equal parts of it.",
    )  # fmt: skip
    password: tuple[Secret | SecretFile, ...] = secrets(
        "Passwords and TLS", "--password", "PASSWORD",
        "Password for following streams and for reading topics. May be repeated: each of them"
        " opens, so that one can take the place of another. Not set, or empty: none required.",
        password_file("--password-file"),
        "Read passwords from this file, one per line, and again when it changes. May be repeated."
        " A file that is later missing or empty changes nothing. Excludes --password.",
    )  # fmt: skip
    ingest_password: tuple[Secret | SecretFile, ...] = secrets(
        "Passwords and TLS", "--ingest-password", "PASSWORD",
        "Password for sending over HTTP, and for creating, changing and deleting topics. May be"
        " repeated, as --password. Not set, or empty: none required. See --udp-listen.",
        password_file("--ingest-password-file"),
        "Read passwords for sending from this file, as --password-file. Excludes"
        " --ingest-password.",
    )  # fmt: skip
    rights: SecretFile | None = _tls(
        "--rights", "PATH", None, secret_file("--rights"),
        "Let the principals in this file in (TOML), each with its own password and right. It is"
        " read again when it changes. Reading and writing then need a password, also without"
        " --password and --ingest-password, and UDP is as with an ingest password.",
        empty_is_unset=True,
    )  # fmt: skip
    token_key: tuple[SecretFile, ...] = _tls(
        "--token-key", "PATH", None, secret_file("--token-key"),
        "Accept tokens (JWT) that are signed with the key in this file: a secret of at least 32"
        " bytes (HS256), a public key in PEM (RS256, ES256, EdDSA), or a JWKS. May be repeated, and"
        " is read again when it changes. Closes reading and writing, as --rights. Needs PyJWT,"
        " which the extra `jwt` installs.",
        repeats=True,
    )  # fmt: skip
    token_audience: tuple[str, ...] = _tls(
        "--token-audience", "NAME", None, values.audience,
        "Accept only tokens whose claim `aud` has this name. May be repeated. Not set: any token."
        " Needs --token-key.",
        repeats=True,
    )  # fmt: skip
    tls_certificate: Path | None = _tls("--tls-certificate", "PATH", None, values.readable,
        "Serve HTTPS with this certificate chain (PEM). Needs --tls-key.",
    )  # fmt: skip
    tls_key: Path | None = _tls("--tls-key", "PATH", None, values.readable,
        "Private key of the certificate (PEM). Needs --tls-certificate.",
    )  # fmt: skip
    max_queued_events: int = _limits("--max-queued-events", "N", "100000", convert.count(1),
        "Maximum number of operations that wait to be stored (the queue), at least 1. When the "
        "queue is full, UDP drops operations and HTTP answers 503. Messages of topics have a queue "
        "of the same size. Workers have equal parts of it, and take no body with more.",
    )  # fmt: skip
    max_queued_bytes: int = _limits("--max-queued-bytes", "SIZE", "64MB", convert.size(65536),
        "Maximum size of the queue in memory, at least 64KB. Messages have a queue of the"
        " same size, and so have fenced operations and the records of transactions that wait for"
        " the store. Workers have equal parts of it, and take no body with more.",
    )  # fmt: skip
    max_body_size: int = _limits("--max-body-size", "SIZE", "16MB", convert.size(1),
        "Maximum size of the body of an HTTP request after decompression, at least 1 byte.",
    )  # fmt: skip
    max_upload_memory: int = _limits("--max-upload-memory", "SIZE", "64MB", convert.size(65536),
        "Memory for all bodies that are being received and decoded, compressed and "
        "decompressed, at least 64KB. Above it HTTP answers 503, except to bodies up to 64KB, which"
        " have a sixteenth of it in reserve. Bodies of polls have an eighth of it besides, at least"
        " 4MB. Workers have equal parts of it, and take no body that needs more.",
    )  # fmt: skip
    max_header_size: int = _limits("--max-header-size", "SIZE", "64KB", convert.size(1024),
        "Maximum size of the URL and headers of an HTTP request, at least 1KB. Above it "
        "HTTP answers 431.",
    )  # fmt: skip
    header_timeout: float = _limits("--header-timeout", "DURATION", "10s", convert.some_time,
        "How long the headers of an HTTP request may take to arrive, more than 0. Then HTTP"
        " answers 408.",
    )  # fmt: skip
    body_timeout: float = _limits("--body-timeout", "DURATION", "30s", convert.some_time,
        "Longest pause within the body of an HTTP request, more than 0. A body that takes "
        "longer than this in total must arrive at 4 KB per second at least. Otherwise HTTP "
        "answers 408.",
    )  # fmt: skip
    max_clients: int = _limits("--max-clients", "N", "10000", convert.count(1),
        "Consumers that may follow at the same time, at least 1. All workers count together.",
    )  # fmt: skip
    max_clients_per_address: int = _limits("--max-clients-per-address", "N", "0", convert.count(0),
        "Consumers that may follow at the same time from one IP address. Above it HTTP "
        "answers 429. 0: no limit. All workers count together.",
    )  # fmt: skip
    max_filter_values: int = _limits("--max-filter-values", "N", "1000", convert.count(1),
        "Types, parents and ids that the filter of one consumer may list together, at least 1."
        " Above it HTTP answers 400.",
    )  # fmt: skip
    ring_size: int = _streams("--ring-size", "N", "65536", convert.count(16),
        "Maximum number of operations in memory for consumers (the ring), at least 16. Slower "
        "consumers read from the store. Each worker has a ring of this size.",
    )  # fmt: skip
    ring_bytes: int = _streams("--ring-bytes", "SIZE", "64MB", convert.size(65536),
        "Maximum size of the ring, at least 64KB. The rings of all topics together may have the"
        " same again. Workers have equal parts of it.",
    )  # fmt: skip
    heartbeat: float = _streams("--heartbeat", "DURATION", "20s", values.heartbeat,
        "Longest silence on a stream before a heartbeat is sent, more than 0 and at most 25s.",
    )  # fmt: skip
    max_connection_age: float = _streams(
        "--max-connection-age", "DURATION|0", "0", convert.time_or_0,
        "End a stream at about this age, so that its consumer reconnects. 0: never.",
    )  # fmt: skip
    stall_timeout: float = _streams("--stall-timeout", "DURATION|0", "5m", convert.time_or_0,
        "Cut off a consumer that takes no byte for this time while its connection is full. "
        "It can reconnect and resume. The same holds for a client that does not take an answer. "
        "0: never.",
    )  # fmt: skip
    object_url: str | None = _streams("--object-url", "TEMPLATE", None, values.object_url,
        "URL of an object, sent to consumers as ref. Must contain {{id}}, may contain {{type}}.",
        empty_is_unset=True,
    )  # fmt: skip
    workers: int = _process("--workers", "N", "1", values.workers,
        "Processes that work as one agent on the same ports and the same store, 1 to 64. Each may"
        " use a core. More than 1 need Linux.",
    )  # fmt: skip
    shutdown_timeout: float = _process("--shutdown-timeout", "DURATION", "30s", convert.some_time,
        "How long a stop may take to store queued operations and to end the streams, more than 0.",
    )  # fmt: skip
    log_format: Literal["text", "json"] = _process(
        "--log-format", "text|json", "text", values.log_format,
        "Write log lines for people (text), or one JSON object per line.",
    )  # fmt: skip
    debug: bool = _process("--debug", None, "false", convert.switch,
        "Log more.",
    )  # fmt: skip

    @property
    def is_closed(self) -> bool:
        """Return whether clients have rights of their own. Then all others need a password."""
        return bool(self.rights or self.token_key)

    @property
    def guards_reading(self) -> bool:
        """Return whether reading needs a password."""
        return bool(self.password or self.is_closed)

    @property
    def guards_writing(self) -> bool:
        """Return whether writing needs a password."""
        return bool(self.ingest_password or self.is_closed)

    @property
    def http_address(self) -> Address:
        """Return the address to listen on for HTTP: --listen, else LOCAL."""
        return self.listen or LOCAL

    @property
    def udp_address(self) -> Address | None:
        """Return the address to listen on for UDP, or None if UDP is off.

        Without --udp-listen it has the port of HTTP. If this port is 0, use the real port of HTTP.
        """
        if self.udp_listen == "off":
            return None
        if self.udp_listen is not None:
            return self.udp_listen
        http = self.http_address
        return http.loopback() if self.guards_writing else http
