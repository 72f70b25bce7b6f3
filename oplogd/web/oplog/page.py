"""The dashboard: one self-contained page that follows the stream through the public endpoints.

The files of the folder ``dashboard`` are put into one document, so that it needs no second request.
"""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from fastapi import Response

_PARTS = re.compile(
    r'<link rel="stylesheet" href="([a-z]+\.css)">|<script src="([a-z]+\.js)"></script>'
)


@cache
def _page() -> tuple[bytes, dict[str, str]]:
    folder = files("oplogd.web").joinpath("dashboard")
    hashes: dict[str, list[str]] = {"style": [], "script": []}

    def inline(part: re.Match[str]) -> str:
        tag = "style" if part[1] else "script"
        text = folder.joinpath(part[1] or part[2]).read_text(encoding="utf-8")
        hashes[tag].append(source(text.encode()))
        return f"<{tag}>{text}</{tag}>"

    html = _PARTS.sub(inline, folder.joinpath("page.html").read_text(encoding="utf-8"))
    guard = guarding(" ".join(hashes["script"]), " ".join(hashes["style"]), "data:")
    return html.encode(), {"Cache-Control": "no-cache", **guard}


def source(text: bytes) -> str:
    """Return the source of an inline script or style for a policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


def guarding(scripts: str, styles: str, images: str) -> dict[str, str]:
    """Return headers that let a page load these sources only, and talk to its own agent only."""
    policy = f"default-src 'none'; connect-src 'self'; script-src {scripts}; style-src {styles};"
    policy += f" img-src {images}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def page() -> Response:
    """Return the page. Its policy allows only its own scripts and requests to its own agent."""
    html, headers = _page()
    return Response(html, 200, headers, "text/html")
