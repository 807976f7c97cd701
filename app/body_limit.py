"""How far a request's body is read: at most to the limit, and for a stranger not even that."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.problems import Problem
from app.server import Server
from app.services.access import Caller, still_known
from app.settings import Settings
from app.sql.transactions import alone

#: So much is read of anybody's body; the rest only once the token is known to be somebody's.
OF_STRANGERS = 64 * 1024


def too_large(settings: Settings) -> Problem:
    return Problem("too_large", f"a request may have {settings.max_body_bytes} bytes", settings.limits())


async def refuse_strangers(server: Server, headers: Headers) -> None:
    """Raises unauthorized for a request whose bearer token is not known."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Problem("unauthorized", "send a token as Authorization: Bearer")
    admin = server.settings.admin_token
    async with alone(server.engine) as pg:
        await still_known(pg, Caller.of(token.strip(), None if admin is None else admin.get_secret_value()))


class BodyLimit:
    """Raises too_large or unauthorized out of the application's `receive`; the route that asked for the body fails."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        server: Server = scope["app"].state.server
        headers, limit = Headers(scope=scope), server.settings.max_body_bytes
        announced = headers.get("content-length", "")
        known_too_large = announced.isdigit() and int(announced) > limit
        taken, stranger = 0, True

        async def receive_limited() -> Message:
            nonlocal taken, stranger
            if known_too_large:
                raise too_large(server.settings)
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise too_large(server.settings)
            if stranger and taken > OF_STRANGERS:
                await refuse_strangers(server, headers)
                stranger = False
            return message

        await self._app(scope, receive_limited, send)
