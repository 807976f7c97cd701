"""Checkpoints: made by the server, or published by devices and judged."""
