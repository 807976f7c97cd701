"""Routes that read their own arguments: for a call that does little, the framework's solver is most of the work."""

from collections.abc import Awaitable, Callable, Coroutine
from inspect import signature
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from app.routes.asking import Asking, bearer, body_of, caller_of, device_of, server_of


async def _asking(request: Request) -> Asking:
    server = await server_of(request)
    return Asking(server, await caller_of(request, server, await bearer(request)))


async def _scope(request: Request) -> str:
    return str(request.path_params["scope"])


async def _device(request: Request) -> str:
    return await device_of(request.path_params["device"])


#: What an endpoint may take, by name.
ARGUMENTS: dict[str, Callable[[Request], Awaitable[Any]]] = {
    "asking": _asking,
    "scope": _scope,
    "device": _device,
    "body": body_of,
}


def _answering(handle: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """What is raised is answered by the application's handlers; the framework would look for them here too."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handle(Request(scope, receive, send))
        await response(scope, receive, send)

    return app


class DirectRoute(APIRoute):
    """A route whose endpoint takes some of `ARGUMENTS`; its signature still makes the OpenAPI document."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = _answering(self.get_route_handler())

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        readers = [(name, ARGUMENTS[name]) for name in signature(self.endpoint).parameters]

        async def handle(request: Request) -> Response:
            response = await self.endpoint(**{name: await read(request) for name, read in readers})
            assert isinstance(response, Response)
            return response

        return handle
