"""What a request carries: the server, the caller, the body; and how an answer leaves."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi import Depends, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AfterValidator, StrictStr
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.types import Send

from app.problems import BrokenOff, Problem
from app.server import Server
from app.services.access import Caller, Reach, Right, reach, reach_or_create, revoked
from app.services.projections.streams import Fold, N, S, Where, refuse_closed
from app.services.projections.writes import StreamWrite
from app.services.reading.open_streams import Revoked, Unchecked
from app.services.reading.spool import Spool
from app.sql.transactions import Driver, driver, reading, writing
from foldpoint.admission import MAX_DEVICE_ID_BYTES
from foldpoint.canonical import Json, Unreadable, read_json
from foldpoint.projections import Projection
from foldpoint.run_ledger.reading import Undecodable
from foldpoint.seal import Keyring
from foldpoint.slug import slug

bearer = HTTPBearer(auto_error=False, description="A token made by `foldpoint token create`.")


async def server_of(request: Request) -> Server:
    found = request.app.state.server
    assert isinstance(found, Server)
    return found


ServerDep = Annotated[Server, Depends(server_of)]


async def caller_of(
    request: Request, server: ServerDep, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> Caller:
    if credentials is None:
        raise Problem("unauthorized", "send a token as Authorization: Bearer")
    admin = server.settings.admin_token
    caller = Caller.of(credentials.credentials, None if admin is None else admin.get_secret_value())
    request.state.caller = caller
    return caller


CallerDep = Annotated[Caller, Depends(caller_of)]


class Work(NamedTuple):
    """A transaction in which the caller's right was checked. `keyring` is that of an unlocked scope."""

    connection: AsyncConnection
    reach: Reach
    keyring: Keyring | None = None

    async def pg(self) -> Driver:
        return await driver(self.connection)

    @property
    def where(self) -> Where:
        """The scope, for its streams."""
        return Where(self.reach.epoch, self.reach.existing, self.reach.mode == "sealed", self.keyring)


class Asking:
    """One call by one caller: opens the transactions of its work, each with the caller's right checked in it."""

    def __init__(self, server: Server, caller: Caller) -> None:
        self.server, self.caller = server, caller

    @asynccontextmanager
    async def reading(self, scope: str, right: Right = Right.READ) -> AsyncIterator[Work]:
        async with reading(self.server.engine) as connection:
            yield Work(connection, await reach(connection, self.caller, scope, right))

    @asynccontextmanager
    async def reading_whole(self, scope: str) -> AsyncIterator[Work]:
        """As `reading`, for a whole scope: it may take long, and waits for others that do."""
        async with self.server.whole.take(slug(scope)), reading(self.server.patient) as connection:
            yield Work(connection, await reach(connection, self.caller, scope, Right.READ))

    @asynccontextmanager
    async def folded(self, scope: str) -> AsyncIterator[Work]:
        """As `reading`, for what is folded. Raises sealed_scope, as 503, while a scope's keys are not in use."""
        async with self.reading(scope) as work:
            yield await self._opened(work)

    @asynccontextmanager
    async def folded_whole(self, scope: str) -> AsyncIterator[Work]:
        """As `folded`, for a whole scope."""
        async with self.reading_whole(scope) as work:
            yield await self._opened(work)

    async def _opened(self, work: Work) -> Work:
        return work._replace(keyring=await self.server.vault.readable(await work.pg(), work.reach))

    @asynccontextmanager
    async def reading_conversation(self, scope: str, limit: int | None) -> AsyncIterator[Work]:
        """As `folded`, for turns of a conversation; without a limit it may take long."""
        async with self.reading_stream(scope) if limit is None else self.folded(scope) as work:
            yield work

    @asynccontextmanager
    async def reading_stream(self, scope: str) -> AsyncIterator[Work]:
        """As `folded`, for a whole stream: it may take long, and pushes go before."""
        async with self.server.whole_streams.take(slug(scope)), self.folded(scope) as work:
            yield work

    @asynccontextmanager
    async def reading_projection(self, scope: str, projection: Projection) -> AsyncIterator[Work]:
        """As `reading_stream`, for entries. Raises sealed_scope, as 503, while one may be closed for want of a key."""
        async with self.reading_stream(scope) as work:
            await refuse_closed(await work.pg(), work.where, projection)
            yield work

    async def stream(self, scope: str, fold: Fold[N, S], name: str) -> N:
        """What a stream of a projection folds to now."""
        async with self.reading_stream(scope) as work:
            read = await self.server.projections.read(await work.pg(), work.where, fold, name)
        await self.server.projections.keep(read)
        return read.now

    async def fold_ahead(self, scope: str, write: StreamWrite[Any]) -> None:
        """Fold the stream that a write goes by, if it is long. Raises unavailable.

        For whatever else stands against it, the write itself is refused, or it makes the scope.
        """
        try:
            async with self.reading(scope) as work:
                long = await write.is_long(await work.pg(), work.reach.existing)
            if long:
                async with self.reading_stream(scope) as work:
                    read = await write.fold_ahead(await work.pg(), work.where)
                await self.server.projections.keep(read)
        except Problem as problem:
            if problem.code == "unavailable":
                raise

    @asynccontextmanager
    async def writing(self, scope: str, right: Right, device: str | None = None) -> AsyncIterator[Work]:
        """An admin's first write makes the scope; a token bound to a device may name only that one."""
        async with writing(self.server.engine) as connection:
            found = await reach_or_create(connection, self.caller, scope, right)
            if device is not None:
                found.may_name(device)
            yield Work(connection, found)


async def asking_of(server: ServerDep, caller: CallerDep) -> Asking:
    return Asking(server, caller)


AskingDep = Annotated[Asking, Depends(asking_of)]


async def body_of(request: Request) -> bytes:
    return await request.body()


BodyDep = Annotated[bytes, Depends(body_of)]


async def device_of(device: str) -> str:
    """The slug of the device in the path. Raises invalid_request for one that no device id can have."""
    if len(device) > MAX_DEVICE_ID_BYTES:
        raise Problem("invalid_request", f"a device id may have {MAX_DEVICE_ID_BYTES} bytes", {"path": "path.device"})
    return slug(device)


DeviceDep = Annotated[str, Depends(device_of)]


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("a string with a lone surrogate") from error
    return text


#: A string of a JSON body that is read into a model.
JsonText = Annotated[StrictStr, AfterValidator(_encodable)]


def read_body(body: bytes) -> Json:
    """A body as strictly read JSON. Raises invalid_request."""
    try:
        return read_json(body)
    except Unreadable as error:
        raise unreadable(error) from error


def unreadable(error: Unreadable) -> Problem:
    facts = {"error_class": error.error_class} if isinstance(error, Undecodable) else {}
    return Problem("invalid_request", str(error), {"path": error.path, **facts})


class Streamed(StreamingResponse):
    """An answer that is sent piece by piece. It breaks off once its caller's token is revoked.

    It begins with its first piece: what fails before that is answered as a problem, and given up if the client leaves.
    `overtaken` raises the problem of an answer whose rows were dropped before it began.
    """

    def __init__(
        self,
        asking: Asking,
        text: AsyncGenerator[bytes],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
        *,
        overtaken: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(text, status, headers, media_type)
        self._asking, self._text, self._overtaken = asking, text, overtaken

    async def stream_response(self, send: Send) -> None:
        begun = False
        try:
            async with self._asking.server.streams.of(self._asking.caller), aclosing(self._text) as text:
                first = await anext(text, b"")
                begun = True
                self.body_iterator = _continued(first, text)
                await super().stream_response(send)
        except BrokenOff as error:
            if not begun:
                await self._refuse(error)
            raise

    async def _refuse(self, error: BrokenOff) -> None:
        """Raises the problem of what was broken off before it began, if there is one."""
        if isinstance(error, Revoked):
            raise revoked() from error
        if isinstance(error, Unchecked):
            raise Problem("unavailable", str(error)) from error
        if self._overtaken is not None:
            await self._overtaken()


async def _continued(first: bytes, text: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for piece in text:
        yield piece


def sent(asking: Asking, spool: Spool, media_type: str = "application/json") -> Response:
    """A short answer at once, a long one piece by piece."""
    if spool.is_short:
        return Response(spool.whole(), media_type=media_type)
    return Streamed(asking, spool.pieces(), media_type=media_type)


def answer(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
