"""The API to read and to try, from this server's own files: the page loads nothing from anywhere else."""

from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse

from app.problems import Problem
from app.routes.documents import refuses

router = APIRouter(include_in_schema=False)

#: Swagger UI, as its package brings it.
FOLDER = files("fastapi_offline") / "static"
ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
#: The browser itself refuses whatever else a page would load.
HERE_ONLY = {"Content-Security-Policy": "default-src 'self' 'unsafe-inline'; img-src 'self' data:"}


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """The page."""
    root = request.scope.get("root_path", "")
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="Foldpoint",
        swagger_js_url=f"{root}/docs/swagger-ui-bundle.js",
        swagger_css_url=f"{root}/docs/swagger-ui.css",
        swagger_favicon_url="data:,",
    )
    page.headers.update(HERE_ONLY)
    return page


@router.get("/docs/{asset}", responses=refuses("not_found"))
async def asset(asset: str) -> FileResponse:
    """What the page loads."""
    if asset not in ASSETS:
        raise Problem("not_found", "the page has no such part")
    return FileResponse(str(FOLDER / asset), media_type=ASSETS[asset])
