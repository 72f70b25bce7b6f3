"""Whether the store answers, as the parts that use it have seen."""

import logging

_log = logging.getLogger("oplogd.store")


class Health:
    """Collects the parts' troubles; each is logged once when it begins and once when it ends."""

    def __init__(self) -> None:
        self._troubles: dict[str, str] = {}

    def bad(self, part: str, message: str) -> None:
        if self._troubles.get(part) != message:
            _log.error("%s: %s", part, message)
        self._troubles[part] = message

    def good(self, part: str) -> None:
        if self._troubles.pop(part, None) is not None:
            _log.info("%s: the store answers again", part)

    def of(self, part: str) -> str | None:
        return self._troubles.get(part)

    @property
    def trouble(self) -> str | None:
        """What is wrong now, None when all is well."""
        return next(iter(self._troubles.values()), None)
