"""What uvicorn runs in each server process."""

import multiprocessing
import os
import signal
import threading

from fastapi import FastAPI

from app import core_dumps
from app.main import app_from_environment


def application() -> FastAPI:
    core_dumps.leave_none()
    _stop_when_the_parent_is_gone()
    return app_from_environment()


def _stop_when_the_parent_is_gone() -> None:
    """A worker whose parent was killed would keep the port and work on a database that nobody holds."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()
