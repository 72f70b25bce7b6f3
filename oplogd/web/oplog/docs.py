"""The pages that describe the API, at /docs. They run only scripts of their own."""

import re

from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html, get_swagger_ui_oauth2_redirect_html
from fastapi.responses import HTMLResponse

from oplogd.web.oplog.page import guarding, source

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
    scripts = " ".join(source(text) for text in _INLINE.findall(bytes(page.body)))
    # Swagger UI sets styles of elements.
    page.headers.update(guarding(f"'self' {scripts}", "'self' 'unsafe-inline'", "'self' data:"))
    return page
