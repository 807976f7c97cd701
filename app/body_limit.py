"""No request's body is read further than the limit, whether or not its length was announced."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.problems import Problem
from app.settings import Settings


def too_large(settings: Settings) -> Problem:
    return Problem("too_large", f"a request may have {settings.max_body_bytes} bytes", settings.limits())


class BodyLimit:
    """Raises too_large out of the application's `receive`; the route that asked for the body fails with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        settings: Settings = scope["app"].state.server.settings
        announced = Headers(scope=scope).get("content-length", "")
        left = settings.max_body_bytes
        known_too_large = announced.isdigit() and int(announced) > left

        async def receive_limited() -> Message:
            nonlocal left
            if known_too_large:
                raise too_large(settings)
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise too_large(settings)
            return message

        await self._app(scope, receive_limited, send)
