"""A merge so far, at a stamp (run-ledger.md §12, checkpoint)."""

from dataclasses import dataclass, field
from typing import Any

from foldpoint.canonical import Json
from foldpoint.hlc import Hlc
from foldpoint.op import read_hlc
from foldpoint.run_ledger.entry import Item, item_from_json, item_to_json
from foldpoint.run_ledger.state import RunState, read_checkpoint


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All records up to the stamp `through`: the state after the settled seqs, and every item from there on.

    It does not grow with the ledger, but for the ids that the run has used up, what is pending, and what no seal
    lets it settle. It holds until a record at or below `through` comes, goes or moves. Shared: never changed.
    """

    through: tuple[Hlc, str] | None = None
    base: RunState = field(default_factory=RunState)
    sealed: int = 0
    epoch: int | None = None
    open: tuple[Item, ...] = ()

    def to_json(self) -> dict[str, Json]:
        through: Json = None if self.through is None else [self.through[0].to_json(), self.through[1]]
        return {
            "through": through,
            "base": self.base.checkpoint(),
            "sealed": self.sealed,
            "epoch": self.epoch,
            "open": [item_to_json(item) for item in self.open],
        }


def read_snapshot(value: Any) -> Snapshot:
    """The snapshot whose `to_json` this is; only what the server itself kept is given."""
    through = value["through"]
    return Snapshot(
        None if through is None else (read_hlc(through[0]), through[1]),
        read_checkpoint(value["base"]),
        value["sealed"],
        value["epoch"],
        tuple(map(item_from_json, value["open"])),
    )
