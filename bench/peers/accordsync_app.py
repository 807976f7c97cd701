"""accordsync's router in a FastAPI application, without a rate limit: it would be what is measured."""

import os

from accordsync_core import define_schema, lww
from accordsync_fastapi import accord_router
from accordsync_server import Access, Auth, define_server
from fastapi import FastAPI

SECRET = "x" * 32
SCHEMA = define_schema({"message": {"body": lww()}})


def application() -> FastAPI:
    server = define_server(
        schema=SCHEMA, scopes={"message": lambda _: ["all"]}, access=lambda _: Access(read=["all"], write=["all"]),
        auth=Auth.hs256(SECRET), rate_limit=None,
    )  # fmt: skip
    app = FastAPI()
    app.include_router(accord_router(server, database_url=os.environ["ACCORD_DATABASE_URL"]))
    return app
