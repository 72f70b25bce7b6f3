"""The shard of a reader: one of N parts of the oplog or of a topic. No I/O."""

import re
from collections.abc import Mapping

from oplogc.wire.errors import ProtocolError

SHARD = "shard"
MAX_SHARDS = 256
_ECHO = "oplog-shard"
_SHARD = re.compile(r"(0|[1-9][0-9]{0,2})/([1-9][0-9]{0,2})", re.ASCII)


def check_shard(text: str) -> str:
    """Return a shard. Raise ValueError."""
    match = _SHARD.fullmatch(text) if isinstance(text, str) else None
    if match is None or not int(match[1]) < int(match[2]) <= MAX_SHARDS:
        raise ValueError(
            f"{text!r} is not a shard: give I/N such as '3/8', with 0 <= I < N <= {MAX_SHARDS}"
        )
    return text


def shard_query(shard: str | None) -> dict[str, str]:
    """Return the parameter of an address, none without a shard. Raise ValueError."""
    return {} if shard is None else {SHARD: check_shard(shard)}


def check_echo(shard: str | None, headers: Mapping[str, str], url: str) -> None:
    """Raise ProtocolError unless an answer is of the shard asked for. ``url``: the address asked.

    ``headers``: their look-up ignores case. An agent without shards sends everything. The shard of
    a named consumer is a number alone: an agent without shards has no named consumers.
    """
    echo = headers.get(_ECHO)
    if not shard or "/" not in shard or echo == shard:
        return
    if echo is None:
        raise ProtocolError(
            f"{url} was asked for shard {shard} and sent everything: the agent does not know"
            " shards, because it is older than this client. Upgrade the agent"
        )
    raise ProtocolError(f"{url} was asked for shard {shard} and sent shard {echo[:20]!r}")
