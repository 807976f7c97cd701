"""The assemble gate: what a durable body may hold, beyond its shape (stored-message.md §4)."""

import re
from collections.abc import Iterable, Mapping

from foldpoint.stored_message.message import Block, Body, StructuredBody
from foldpoint.stored_message.refusals import Incompatible

#: Standard alphabet, whole groups of four, padding at the end only. Nothing is decoded.
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")


def check_body(body: Body) -> None:
    """Raises Incompatible unless a structured body has one form, with content that a provider could take."""
    if body["form"] == "structured":
        check_structured(body)


def check_structured(body: StructuredBody) -> None:
    if ("durable_content" in body) == ("durable_tool_results" in body):
        raise Incompatible("expected either content or tool results", "body")
    if "durable_content" in body:
        _check_blocks(body["durable_content"]["blocks"])
    else:
        for result in body["durable_tool_results"]:
            _check_filled(result, ["call_id"], "tool result")
            _check_blocks(result["blocks"])


def _check_blocks(blocks: Iterable[Block]) -> None:
    for block in blocks:
        if block["type"] != "text":
            _check_source(block["source"])
            if "media_type" in block:
                _check_filled(block, ["media_type"], block["type"])


def _check_source(source: Block) -> None:
    _check_filled(source, [name for name in source if name != "affinity"], source["kind"])
    if "affinity" in source:
        _check_filled(source["affinity"], source["affinity"], "affinity")
    if "data" in source and not _BASE64.fullmatch(source["data"]):
        raise Incompatible("not base64", "body")


def _check_filled(members: Mapping[str, object], names: Iterable[str], what: str) -> None:
    for name in names:
        if not members[name]:
            raise Incompatible(f"the {name} of a {what} is empty", "body")
