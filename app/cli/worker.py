"""What uvicorn runs in each server process."""

import gc
import multiprocessing
import os
import signal
import threading

from fastapi import FastAPI

from app import core_dumps
from app.main import app_from_environment

#: A push or a page makes many objects that are gone once it is answered, and hardly a cycle: the collector, which would
#: look at them every 700, took a tenth of the time.
GC_EVERY = 50_000


def application() -> FastAPI:
    core_dumps.leave_none()
    _stop_when_the_parent_is_gone()
    app = app_from_environment()
    gc.freeze()
    gc.set_threshold(GC_EVERY)
    return app


def _stop_when_the_parent_is_gone() -> None:
    """A worker whose parent was killed would keep the port and work on a database that nobody holds."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()
