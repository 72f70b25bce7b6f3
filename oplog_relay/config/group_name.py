"""The default name of a leader group. No I/O."""

import re
from pathlib import PurePath

from oplogc.topics.messages.names import namespace_name

# They say nothing about the service.
_SILENT = re.compile(
    r"|-.*|_*(main|init)_*|app|asgi|celery|daphne|django-admin|fastapi|flask|gunicorn|hypercorn|ipython"
    r"|manage|oplog[-_]relay|py|pypy|py\.?test|python|run|server|start|uv|uvicorn|worker|wsgi",
    re.IGNORECASE,
)
_VERSION = re.compile(r"[\d.]+$")


def name_of_program(argv0: str) -> str | None:
    """Return the name of an executable, None if it says nothing about the service."""
    name = PurePath(argv0).name
    stem = re.sub(r"\.(py|pyc|pyz|exe|test)$", "", name, flags=re.IGNORECASE)
    if _SILENT.fullmatch(_VERSION.sub("", stem)):
        return None
    try:
        return namespace_name(stem)
    except ValueError:
        return None
