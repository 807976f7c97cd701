"""What holds for every route, whatever it does."""

from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.main import create_app
from app.problems import CODES
from app.routes.documents import ALWAYS
from app.settings import Settings
from tests.wire.documented import ROUTES, refusals


def called(dependant: Dependant) -> Iterator[Any]:
    for inner in dependant.dependencies:
        yield inner.call
        yield from called(inner)


def test_no_request_waits_for_a_thread() -> None:
    """FastAPI runs plain functions and classes that routes depend on in its few threads."""
    for route in ROUTES:
        for call in (route.endpoint, *called(route.dependant)):
            assert iscoroutinefunction(call) or iscoroutinefunction(type(call).__call__), (route.path, call)


def shown() -> list[APIRoute]:
    return [route for route in ROUTES if route.include_in_schema]


@pytest.mark.parametrize("route", shown(), ids=lambda route: f"{min(route.methods)} {route.path}")
def test_each_route_shows_what_it_answers_and_with_which_codes_it_refuses(route: APIRoute) -> None:
    assert 204 in route.responses or all(
        said.keys() & {"example", "examples"} for said in route.responses[200]["content"].values()
    )
    codes = {code for code, _ in refusals(route)}
    if route.path not in ("/healthz", "/readyz"):
        assert set(ALWAYS) <= codes
    assert ("/scopes/" in route.path or route.path.startswith("/sync/")) <= ("not_found" in codes)


def test_every_code_is_shown_at_some_route() -> None:
    """`rate_limited` is reserved: nothing answers it yet."""
    shown_codes = {code for route in shown() for code, _ in refusals(route)}
    assert shown_codes == CODES.keys() - {"rate_limited"}


def test_the_document_names_every_code_once_and_nothing_of_the_code_that_serves_it() -> None:
    document = create_app(Settings.model_construct()).openapi()
    assert document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"] == sorted(CODES)
    assert not {name for name in document["components"]["schemas"] if "__" in name or "Validation" in name}
