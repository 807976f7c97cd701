"""Whoever holds keys in memory leaves no core dump (server.md §9)."""

import resource

#: Bytes. Too few for any file; and Linux hands no dump of a process with this limit to a program either.
TOO_FEW = 1


def leave_none() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    most = 0 if hard == 0 else TOO_FEW
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
