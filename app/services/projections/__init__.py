"""Session journals, run ledgers and contexts (server.md §8)."""
