"""Headers of every response: the server epoch, and an id by which a request is found in the log."""

from secrets import token_hex

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server import Server
from app.services.access import Caller

EPOCH = "Foldpoint-Epoch"
REQUEST_ID = "X-Request-Id"


class Headers:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        request_id = state["request_id"] = token_hex(8)
        server: Server = scope["app"].state.server

        answered = False

        async def send_with_headers(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                headers[EPOCH] = server.epoch = _seen(state.get("caller")) or server.epoch
            await send(message)
            answered = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            # Starlette raises again what the last resort has logged and answered; the connection can go on.
            if not answered:
                raise


def _seen(caller: Caller | None) -> str | None:
    """The server epoch that this request's transaction saw, if it came to one."""
    return None if caller is None else caller.epoch
