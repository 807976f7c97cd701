"""Which winners are fixed (server.md §8)."""

from collections.abc import Iterable

from foldpoint.run_ledger.entry import Seal
from foldpoint.run_ledger.errors import SealMismatch


def in_force(seals: Iterable[Seal]) -> tuple[dict[int, str], dict[str, SealMismatch]]:
    """The fixed winner by seq, and by its id each seal that fixes nothing.

    Per seq the smallest seal decides; one that disagrees anywhere is illegal as a whole.
    """
    fixed: dict[int, str] = {}
    illegal: dict[str, SealMismatch] = {}
    for seal in sorted(seals, key=lambda seal: seal.rank):
        sealed = dict(enumerate(seal.winners, seal.first_seq))
        mismatch = next((seq for seq, winner in sealed.items() if fixed.get(seq, winner) != winner), None)
        if mismatch is None:
            fixed |= sealed
        else:
            illegal[seal.place.id] = SealMismatch(seq=mismatch, expected=fixed[mismatch], actual=sealed[mismatch])
    return fixed, illegal
