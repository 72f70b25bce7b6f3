"""Settings of several mappings. No I/O."""

from oplog_kit.config.fields import Field as Field
from oplog_kit.config.fields import Kind as Kind
from oplog_kit.config.fields import tls_fields
from oplog_pipe.model import checks

HOUR = 3600
TLS = tls_fields("the pipe")
USER = (
    Field("user", Kind.TEXT, "User for Basic authentication."),
    Field("password", Kind.SECRET, "Password of `user`."),
)
AGENTS = Field(
    "agents",
    Kind.URLS,
    "Addresses of agents on one store. If one is unreachable, the next one is asked.",
    check=checks.agent,
    required="give the addresses of agents, such as [http://localhost:8042]",
)
LOG = Field("log", Kind.TEXT, "`system/oplog`, or a topic as `namespace/topic`.", check=checks.log)


def timeout(meaning: str) -> Field:
    return Field("timeout", Kind.DURATION, meaning, 0.01, HOUR)


def template(name: str, meaning: str) -> Field:
    """Return a setting of text with ``{namespace}`` and ``{id}``."""
    return Field(name, Kind.TEXT, meaning, check=checks.template)


ID = template("id", "Id of the object there, with `{namespace}` and `{id}`.")._replace(
    hints=("key", "primary_key")
)
