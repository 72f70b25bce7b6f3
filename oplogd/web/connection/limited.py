"""The protocol with the limits of an agent's settings."""

import logging

from oplogd.config.settings import Settings
from oplogd.host.descriptors import Descriptors
from oplogd.host.logs import Episode
from oplogd.web.connection.limits import RequestLimits
from oplogd.web.connection.protocol import HttpProtocol

_QUIET_SECONDS = 60.0

logger = logging.getLogger("oplogd.http")


def protocol_class(settings: Settings, kept: Descriptors) -> type[HttpProtocol]:
    """Return the class for uvicorn's option ``http``, with the limits of the settings."""

    class LimitedHttpProtocol(HttpProtocol):
        descriptors = kept
        limits = RequestLimits(
            settings.max_header_size,
            settings.header_timeout,
            settings.body_timeout,
            settings.stall_timeout,
        )
        refused_requests = Episode(
            logger, "refused a request", quiet=_QUIET_SECONDS, level=logging.INFO
        )

    return LimitedHttpProtocol
