"""Answers as NDJSON: one value a line; what is said of the whole goes into headers."""

NDJSON = "application/x-ndjson"
CURSOR, CAUGHT_UP = "Foldpoint-Cursor", "Foldpoint-Caught-Up"
