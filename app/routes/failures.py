"""Every failure as application/problem+json with a stable code."""

import logging

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.away import DATABASE_ERRORS, unavailable
from app.problems import BrokenOff, Problem

log = logging.getLogger("foldpoint")


def install(app: FastAPI) -> None:
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    for kind in DATABASE_ERRORS:
        app.add_exception_handler(kind, _database)
    app.add_exception_handler(Exception, _unexpected)


def _answer(problem: Problem) -> Response:
    body = orjson.dumps(problem.body())
    return Response(body, problem.status, problem.headers(), "application/problem+json")


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _answer(error)


async def _invalid(_: Request, error: Exception) -> Response:
    """The first fault of a request, without the value that was sent: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    path = ".".join(str(part) for part in fault["loc"])
    hint = "; is it sent as Content-Type: application/json?" if path == "body" else ""
    return _answer(Problem("invalid_request", f"{path}: {fault['msg']}{hint}", {"path": path}))


async def _http(_: Request, error: Exception) -> Response:
    """What the framework refuses; a Problem that it met while it read a body, as itself."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, Problem):
        return _answer(error.__cause__)
    if error.status_code == 400:
        return _answer(Problem("invalid_request", str(error.detail)))
    code = "not_found" if error.status_code == 404 else "invalid_request"
    return _answer(Problem(code, str(error.detail), status=error.status_code))


async def _hung_up(_: Request, __: Exception) -> Response:
    """The client left in mid-body; nothing of the request was taken, and nobody reads the answer."""
    return _answer(Problem("invalid_request", "the request's body ended early"))


async def _database(request: Request, error: Exception) -> Response:
    problem = unavailable(error)
    if problem is None:
        return await _unexpected(request, error)
    log.warning("%s: the database is away or busy: %s", request.state.request_id, type(error).__name__)
    return _answer(problem)


async def _unexpected(request: Request, error: Exception) -> Response:
    """The last resort: a fault of ours. The log has the trace; the client gets an id to name it by."""
    if isinstance(error, BrokenOff):
        log.warning("%s: the answer was broken off: %s", request.state.request_id, error)
    else:
        log.error("%s: unexpected failure", request.state.request_id, exc_info=error)
    return _answer(Problem("internal", "the server failed", {"request_id": request.state.request_id}))
