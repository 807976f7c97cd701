"""Rows that hold a record."""

from collections.abc import Mapping
from typing import Any

from app.sql.keys import op_id_text
from foldpoint.hlc import Hlc
from foldpoint.state import Record


def record_of(row: Mapping[str, Any]) -> Record:
    """The record in a row with wall_ms, counter, device_id, op_id and payload."""
    hlc = Hlc(row["wall_ms"], row["counter"], row["device_id"].decode())
    return Record(hlc, op_id_text(row["op_id"]), row["payload"])
