"""The pages that describe the API, at /docs. They run only scripts of their own."""

import base64
import hashlib
import re

from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html, get_swagger_ui_oauth2_redirect_html
from fastapi.responses import HTMLResponse

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
    scripts = [
        base64.b64encode(hashlib.sha256(text).digest()).decode()
        for text in _INLINE.findall(bytes(page.body))
    ]
    hashes = " ".join(f"'sha256-{digest}'" for digest in scripts)
    page.headers["Content-Security-Policy"] = "; ".join(
        (
            "default-src 'none'",
            "connect-src 'self'",
            f"script-src 'self' {hashes}",
            "style-src 'self' 'unsafe-inline'",  # Swagger UI sets styles of elements
            "img-src 'self' data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    page.headers["Referrer-Policy"] = "no-referrer"
    page.headers["X-Content-Type-Options"] = "nosniff"
    return page
