"""Whoever holds keys in memory leaves no core dump (server.md §9)."""

import resource

#: Too little for any file; and Linux hands no dump of a process with this limit to a program either.
ONE_BYTE = 1, 1


def leave_none() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, ONE_BYTE)
