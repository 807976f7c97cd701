"""What the OpenAPI document says of the route that a request went to."""

import httpx
from fastapi.routing import APIRoute
from starlette.routing import Match

from app.main import ROUTERS
from app.routes.documents import PROBLEM

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


def route_of(request: httpx.Request) -> APIRoute | None:
    """The route that serves a request; None for a path or a method that none does."""
    asked = {"type": "http", "method": request.method, "path": request.url.path, "headers": []}
    return next((route for route in ROUTES if route.matches(asked)[0] is Match.FULL), None)


def refusals(route: APIRoute) -> set[tuple[str, int]]:
    """Each code that the route may be refused with, with its status."""
    found = set()
    for status, said in route.responses.items():
        for code in said.get("content", {}).get(PROBLEM, {}).get("examples", {}):
            found.add((code, int(status)))
    return found
