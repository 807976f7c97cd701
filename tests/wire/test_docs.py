"""The page that shows the API (server.md §4): a server of one's own loads it from nowhere else."""

import re

import httpx

from tests.fixtures.server import RunningServer
from tests.wire.answers import read, refused

LOADED = re.compile(r'(?:src|href)="([^"]+)"')


async def test_the_page_and_all_it_loads_come_from_this_server_and_need_no_token(server: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=server.base, verify=False) as anybody:
        page = await anybody.get("/docs")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        loaded = [url for url in LOADED.findall(page.text) if not url.startswith("data:")]
        assert len(loaded) == 2
        for url in loaded:
            assert url.startswith("/docs/")
            asset = await anybody.get(url)
            assert asset.status_code == 200
            assert len(asset.content) > 100_000
        assert "https://" not in page.text
        assert "url: '/openapi.json'" in page.text
        assert read(await anybody.get("/openapi.json"))["info"]["title"] == "Foldpoint"


async def test_there_is_no_other_page_and_no_other_part(admin: httpx.AsyncClient) -> None:
    for path in ("/docs/redoc.standalone.js", "/docs/..%2Fcore.py", "/docs/x", "/redoc", "/docs/"):
        refused(await admin.get(path), "not_found")
