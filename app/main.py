"""The composition of the server: routes, error answers, the headers of every response."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from app.body_limit import BodyLimit
from app.database import NO_TIMEOUT, create_engine
from app.headers import Headers
from app.key_file import KeyFile
from app.routes import (
    checkpoints,
    contexts,
    conversations,
    docs,
    executors,
    failures,
    health,
    hosted,
    journals,
    keys,
    leases,
    ops,
    records,
    run_ledgers,
    scopes,
    sync_devices,
    sync_leases,
    sync_org_keys,
    sync_scope,
    upkeep,
)
from app.routes.documents import with_problem
from app.server import PATIENT, Server
from app.services.keys.vault import Vault
from app.settings import Settings
from app.sql.server_row import read_epoch

ROUTERS = (
    sync_devices.router,
    sync_leases.router,
    sync_org_keys.router,
    sync_scope.router,
    scopes.router,
    keys.router,
    ops.router,
    records.router,
    conversations.router,
    executors.router,
    leases.router,
    hosted.router,
    contexts.router,
    run_ledgers.router,
    journals.router,
    checkpoints.router,
    upkeep.router,
    health.router,
    docs.router,
)


class _Foldpoint(FastAPI):
    def build_middleware_stack(self) -> ASGIApp:
        """The headers go outside everything, so that the last resort's answer has them too."""
        return Headers(super().build_middleware_stack())

    def openapi(self) -> dict[str, Any]:
        return with_problem(super().openapi())


def create_app(settings: Settings) -> FastAPI:
    """The application of one server process, on a migrated database."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if settings.database_url is None:
            raise RuntimeError("no FOLDPOINT_DATABASE_URL; `foldpoint serve` starts an embedded one")
        url = settings.database_url.get_secret_value()
        vault = Vault(None if settings.key_file is None else KeyFile.read(settings.key_file))
        engine, patient = create_engine(url, settings.pool_size), create_engine(url, PATIENT, **NO_TIMEOUT)
        probe, watch = create_engine(url, 1), create_engine(url, 1)
        epoch = await read_epoch(engine)
        app.state.server = Server(engine, patient, probe, watch, settings, epoch, vault)
        app.state.server.background.start()
        yield
        await app.state.server.stop()

    app = _Foldpoint(
        title="Foldpoint",
        summary="A sync server for AI-agent state.",
        version="0.1.0",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(BodyLimit)
    failures.install(app)
    for router in ROUTERS:  # listed, not included: an included router matches each path twice
        app.router.routes.extend(router.routes)
    return app


def app_from_environment() -> FastAPI:
    return create_app(Settings())
