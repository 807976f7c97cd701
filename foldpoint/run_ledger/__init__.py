"""Run ledgers: one agent run as an ordered ledger of recorded events that several devices may extend (run-ledger.md).

wire → transitions replay one ledger; entry → seals → merge make one ledger of what all devices recorded; answers,
readback, lines and executor say what a reader, an exporter and an executor get from it.
"""

#: The registry kind whose records are the entries of all runs (server.md §8), and the surface's tag.
KIND = "foldpoint.run_ledger"
SURFACE_TAG = f"registry:{KIND}"
