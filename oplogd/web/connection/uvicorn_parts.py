"""Parts of uvicorn that ``HttpProtocol`` overrides or calls although they are not public."""

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oplogd.errors import StartupError

_PARTS = ("_start_asgi_task", "_unset_keepalive_if_required", "on_response_complete")


def require_parts() -> None:
    """Raise StartupError if a part is missing: without it requests would have no bound on their
    time.
    """
    if missing := [name for name in _PARTS if not hasattr(HttpToolsProtocol, name)]:
        raise StartupError(
            f"uvicorn {uvicorn.__version__} does not fit: it has no {', '.join(missing)};"
            " install oplog with -c constraints.txt"
        )
