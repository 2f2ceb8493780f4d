"""A still picture of an explorer, for a page that is opened again without its kernel.

kaleido keeps one Chromium for all figures of a process. Its start takes a second or more, so it begins in the
background as soon as an explorer is made in a notebook; a display then waits a second at most, and goes without.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import queue
import sys
import threading
from typing import Any

import plotly.graph_objects as go

from gnnsample_lab.doctor import find_chromium

LIMIT_S = 1.0
"""The longest that a display waits for its picture."""
ASKED_S = 60.0
"""The same where pictures were asked for by ``LAB_STATIC_IMAGES=1``."""
HINT = (
    "(A saved page shows a picture here where kaleido and Chromium are installed: pip install kaleido; "
    "gnnsample-lab doctor says what is missing.)"
)
_tasks: queue.SimpleQueue[tuple[go.Figure, queue.SimpleQueue[bytes]]] = queue.SimpleQueue()


@functools.cache
def available() -> bool:
    """Whether kaleido and Chromium are here."""
    return importlib.util.find_spec("kaleido") is not None and find_chromium() is not None


def asked() -> bool:
    """Whether a display makes a picture: by ``LAB_STATIC_IMAGES`` (1 or 0), else in a notebook's kernel alone."""
    wish = os.environ.get("LAB_STATIC_IMAGES", "")
    return wish == "1" or (wish != "0" and "ipykernel.kernelapp" in sys.modules)


@functools.cache
def _worker() -> threading.Thread:
    """The one thread that draws. A daemon: a process that ends does not wait for Chromium."""
    thread = threading.Thread(target=_draw_all, name="lab-stills", daemon=True)
    thread.start()
    return thread


def _draw_all() -> None:
    while True:
        figure, reply = _tasks.get()
        try:
            reply.put(png(figure))
        except Exception:  # a picture is an extra: without it the page has the text
            reply.put(b"")


def png(figure: go.Figure) -> bytes:
    """The figure as a PNG, drawn by kaleido's Chromium, which starts with the first one."""
    import kaleido

    chromium = find_chromium()
    if chromium:
        os.environ.setdefault("BROWSER_PATH", chromium)
    kaleido.start_sync_server(silence_warnings=True)
    size = {"format": "png", "width": 800, "height": int(figure.layout.height or 420)}
    drawn: bytes = kaleido.calc_fig_sync(figure, opts=size)
    return drawn


def warm() -> None:
    """Have Chromium start, where displays will want it."""
    if asked() and available() and not _worker_runs():
        request(go.Figure())


def _worker_runs() -> bool:
    return _worker.cache_info().currsize > 0


def request(figure: go.Figure) -> queue.SimpleQueue[bytes]:
    """Ask for a picture; it arrives in the queue, empty where it could not be drawn."""
    reply: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    _worker()
    _tasks.put((figure, reply))
    return reply


def picture(figure: Any) -> bytes:
    """A PNG within :data:`LIMIT_S`, or nothing (empty)."""
    if not (asked() and available()):
        return b""
    limit = ASKED_S if os.environ.get("LAB_STATIC_IMAGES") == "1" else LIMIT_S
    try:
        return request(figure).get(timeout=limit)
    except queue.Empty:
        return b""
