"""The protocol with the settings of an agent."""

import logging

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oplogd.config.settings import Settings
from oplogd.errors import StartupError
from oplogd.host.descriptors import Descriptors
from oplogd.host.logs import Episode
from oplogd.web.connection.protocol import HttpProtocol

_QUIET_SECONDS = 60.0

# Parts of uvicorn that ``HttpProtocol`` overrides or calls although they are not public.
_PARTS = ("_start_asgi_task", "_unset_keepalive_if_required", "on_response_complete")

logger = logging.getLogger("oplogd.http")


def protocol_class(agent_settings: Settings, kept: Descriptors) -> type[HttpProtocol]:
    """Return the class for uvicorn's option ``http``.

    Raises StartupError if uvicorn lacks a part: without it requests would have no bound on their
    time.
    """
    if missing := [name for name in _PARTS if not hasattr(HttpToolsProtocol, name)]:
        raise StartupError(
            f"uvicorn {uvicorn.__version__} does not fit: it has no {', '.join(missing)};"
            " install oplog with -c constraints.txt"
        )

    class LimitedHttpProtocol(HttpProtocol):
        descriptors = kept
        settings = agent_settings
        refused_requests = Episode(
            logger, "refused a request", quiet=_QUIET_SECONDS, level=logging.INFO
        )

    return LimitedHttpProtocol
