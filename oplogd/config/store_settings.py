"""The settings of the network, the store, and the things in it: a part of ``Settings``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oplog_kit.command import convert
from oplog_kit.command.convert import Secret
from oplog_kit.command.flags import secret, setting
from oplog_kit.listen import Address
from oplogd.config import values


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Sizes are in bytes, durations in seconds. Its flags come first in the help."""

    listen: Address | None = setting(
        "Network", "--listen", "ADDRESS", None, values.address,
        "Serve HTTP at this address: :PORT for all interfaces, HOST:PORT or [IPV6]:PORT. "
        "Port 0 takes a free port. Not set: localhost:8042, for programs on this machine only.",
    )  # fmt: skip
    udp_listen: Address | Literal["off"] | None = setting(
        "Network", "--udp-listen", "ADDRESS|off", None, values.udp_address,
        "Receive operations over UDP at this address, in the same forms, or off. Not set: "
        "the address of --listen. With an ingest password, which cannot guard UDP, it is "
        "the loopback address with the port of --listen.",
    )  # fmt: skip
    allowed_hosts: frozenset[str] | None = setting(
        "Network", "--allowed-hosts", "NAMES", None, values.host_names,
        "Names of this agent, comma-separated, under which web pages may send operations "
        "without an ingest password. localhost and IP addresses need not be listed. Not "
        "set: none.",
        empty_is_unset=True,
    )  # fmt: skip
    store: Path = setting(
        "Store", "--store", "PATH", "oplog.db", values.path,
        "SQLite file that holds the log. Created if it is missing. Excludes --mongo-url.",
    )  # fmt: skip
    capped_collection_size: int | None = setting(
        "Store", "--capped-collection-size", "SIZE", None, convert.size(4096),
        "Maximum size of the log, at least 4096 bytes. A full log drops its oldest "
        "operations. Not set: an existing store keeps its size, a new one gets 256MB.",
    )  # fmt: skip
    disk_reserve: int | None = setting(
        "Store", "--disk-reserve", "SIZE", None, convert.size(0),
        "Size of the file beside the SQLite file that holds room on the disk. It is removed when"
        " the disk is full, so that topics can still be deleted. 0: none. At most a quarter of"
        " the disk. Not set: a sixteenth of it, at most 64MB.",
    )  # fmt: skip
    tombstone_retention: float = setting(
        "Store", "--tombstone-retention", "DURATION|0", "0", convert.time_or_0,
        "How long to remember deleted objects. A consumer that was disconnected for longer "
        "replicates all objects again. 0: for ever.",
    )  # fmt: skip
    new_epoch: bool = setting(
        "Store", "--new-epoch", None, "false", convert.switch,
        "Set the log aside, begin a new one from the states and exit. Every consumer then "
        "replicates all objects again. Repairs a store whose times are far ahead of the clock, "
        "topics included. Stop the agent first.",
    )  # fmt: skip
    topic_ttl: int | None = setting(
        "Topics", "--topic-ttl", "DURATION", None, values.whole_seconds,
        "Time to live of messages in topics without one of their own, at least 1s, in whole"
        " seconds. Not set: an existing store keeps its value, a new one gets 7d.",
    )  # fmt: skip
    topics_max_bytes: int | None = setting(
        "Topics", "--topics-max-bytes", "SIZE|0", None, convert.size_or_0(1 << 20),
        "Maximum size of the messages of all topics together, at least 1MB. Above it the oldest"
        " messages leave. 0: no bound. Not set: an existing store keeps its value, a new one has"
        " none.",
    )  # fmt: skip
    topic_cleanup: float = setting(
        "Topics", "--topic-cleanup", "DURATION", "1h", convert.some_time,
        "How often messages that have expired are removed from the store, and the commit logs of"
        " idle groups deleted, more than 0. Nobody gets expired messages even before that.",
    )  # fmt: skip
    poll_limit: int = setting(
        "Topics", "--poll-limit", "N", "1000", convert.count(1),
        "Most messages in the answer to a poll, at least 1. A poll that asks for more gets this"
        " many.",
    )  # fmt: skip
    txn_max_records: int = setting(
        "Transactions", "--txn-max-records", "N", "100000", convert.count(1),
        "Most records of a transaction, at least 1. Also the most messages that are stored under a"
        " pointer in a topic and not yet published.",
    )  # fmt: skip
    txn_max_bytes: int = setting(
        "Transactions", "--txn-max-bytes", "SIZE", "64MB", convert.size(1),
        "Maximum size of the records of a transaction, at least 1 byte. Also that of the messages"
        " that are stored under a pointer in a topic and not yet published.",
    )  # fmt: skip
    pointer_timeout: int = setting(
        "Transactions", "--pointer-timeout", "DURATION", "15m", values.pointer_timeout,
        "How long the pointer of a foreign transaction stays open in a topic after its first"
        " publish, or after its last store if nothing is published, unless its owner reports commit"
        " or abort. Then it counts as aborted. At least 1s and at most 30d, in whole seconds.",
    )  # fmt: skip
    mongo_url: Secret | None = secret(
        "MongoDB", "--mongo-url", "URL", convert.mongo_url,
        "Keep the log in MongoDB, at mongodb://... or mongodb+srv://... Other users see a URL on"
        " the command line: prefer the variable or --mongo-url-file. Needs PyMongo, which the"
        " extra `mongo` installs. Excludes --store.",
    )  # fmt: skip
    log_collection: Literal["capped", "plain"] = setting(
        "MongoDB", "--log-collection", "capped|plain", "capped", convert.log_collection,
        "How MongoDB keeps the log: in a capped collection, or in a plain one that the "
        "agents trim, for services without capped collections.",
    )  # fmt: skip
    lease: float = setting(
        "MongoDB", "--lease", "DURATION", "5s", values.lease,
        "How long the agent that folds MongoDB's log into the states may be silent before "
        "another one takes over, at least 100ms. Give all agents the same value. If values "
        "differ, the longer one counts.",
    )  # fmt: skip
    spool: Path | None = setting(
        "MongoDB", "--spool", "PATH", None, values.path,
        "SQLite file that keeps operations received over UDP while MongoDB is unreachable. Not "
        "set: in memory only. Needs --mongo-url.",
        empty_is_unset=True,
    )  # fmt: skip
    spool_size: int = setting(
        "MongoDB", "--spool-size", "SIZE", "1GB", convert.size(1 << 20),
        "Maximum size of the spool, at least 1MB.",
    )  # fmt: skip
