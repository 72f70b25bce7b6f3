"""The pages for browsers: the dashboard, and the description of the API at /docs.

The dashboard follows the stream through the public endpoints. The files of the folder ``dashboard``
are put into one document, so that it needs no second request. All pages run only their own scripts.
"""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html, get_swagger_ui_oauth2_redirect_html
from fastapi.responses import HTMLResponse

_PARTS = re.compile(
    r'<link rel="stylesheet" href="([a-z]+\.css)">|<script src="([a-z]+\.js)"></script>'
)

# The folder of fastapi-offline.
_STATIC = "/static-offline-docs"
# Swagger UI has a dark theme, but follows no preference by itself.
_THEME = """
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
    dark.addEventListener("change", follow);
    follow();
    """
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


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


def add_docs(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def get_docs(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        page = get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=f"{app.title} - Swagger UI",
            oauth2_redirect_url=app.swagger_ui_oauth2_redirect_url,
            swagger_js_url=f"{root}{_STATIC}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{_STATIC}/swagger-ui.css",
            swagger_favicon_url=f"{root}{_STATIC}/favicon.png",
        )
        html = bytes(page.body).decode().replace("const ui", f"{_THEME}const ui", 1)
        return _guarded(HTMLResponse(html))

    @app.get("/docs/oauth2-redirect", include_in_schema=False)
    async def get_redirect() -> Response:
        return _guarded(get_swagger_ui_oauth2_redirect_html())


def _guarded(page: Response) -> Response:
    """Let a page run its own scripts, and talk to its own agent."""
    scripts = " ".join(source(text) for text in _INLINE.findall(bytes(page.body)))
    # Swagger UI sets styles of elements.
    page.headers.update(guarding(f"'self' {scripts}", "'self' 'unsafe-inline'", "'self' data:"))
    return page
