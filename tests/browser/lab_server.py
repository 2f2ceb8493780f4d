"""A real JupyterLab on a loopback port, and the page functions that drive a notebook in it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]

OVERRIDES = {
    # All cells rendered, wherever the page is scrolled to; no toasts in the way.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    # A notebook that is opened again has no outputs.
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}

# Loading JupyterLab takes a browser twice as long as opening a notebook in it.
SWITCH = """async (path) => {
  const app = window.jupyterapp;
  const before = app.shell.currentWidget;
  await before?.sessionContext.shutdown().catch(() => {});
  before?.dispose();  // first: a notebook that is open already would be shown as it is
  const panel = await app.commands.execute('docmanager:open', { path, factory: 'Notebook' });
  await panel.context.ready;
}"""

READY = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  for (let i = 0; i < 600; i++) {
    const panel = app.shell.currentWidget;
    if (panel?.sessionContext?.session?.kernel) break;
    await new Promise((r) => setTimeout(r, 100));
  }
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""


@dataclass(frozen=True)
class Server:
    """Where the running JupyterLab is reached, and the folder that it serves."""

    url: str
    token: str
    folder: pathlib.Path

    def request(self, path: str, method: str = "GET") -> object:
        call = urllib.request.Request(
            f"{self.url}{path}", method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(call, timeout=10) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def end_sessions(self) -> None:
        for session in self.request("/api/sessions"):  # type: ignore[attr-defined]
            with contextlib.suppress(urllib.error.HTTPError):
                self.request(f"/api/sessions/{session['id']}", "DELETE")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_lab(
    folder: pathlib.Path, scratch: pathlib.Path, env: dict[str, str] | None = None
) -> Iterator[Server]:
    """JupyterLab serving ``folder``; its settings and logs go to ``scratch``. Ended when the block ends."""
    config = scratch / "config"
    (config / "labconfig").mkdir(parents=True, exist_ok=True)
    (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(OVERRIDES))
    port, token = _free_port(), secrets.token_hex(16)
    settings = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_DATA_DIR": str(scratch / "data"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "JUPYTERLAB_WORKSPACES_DIR": str(scratch / "workspaces"),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "widgets"), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        "LAB_STATIC_IMAGES": "0",  # one Chromium is enough
        **(env or {}),
    }
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}",
        "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    with (scratch / "jupyterlab.log").open("wb") as log:
        process = subprocess.Popen(command, env=settings, stdout=log, stderr=subprocess.STDOUT, cwd=scratch)
    server = Server(f"http://127.0.0.1:{port}", token, folder)
    try:
        for _ in range(900):
            if process.poll() is not None:
                break
            try:
                server.request("/api/status")
                break
            except OSError:
                time.sleep(0.2)
        else:
            raise RuntimeError("JupyterLab did not answer within three minutes")
        if process.poll() is not None:
            raise RuntimeError(
                "JupyterLab ended at once:\n" + (scratch / "jupyterlab.log").read_text()[-3000:]
            )
        yield server
        with contextlib.suppress(OSError):
            server.end_sessions()
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def browser_context(executable: str) -> Iterator[object]:
    """A fresh headless Chromium, for pages that share what it keeps."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=executable,
            # Containers run as root and have little shared memory; WebGL falls back to software.
            args=["--no-sandbox", "--disable-dev-shm-usage", "--enable-unsafe-swiftshader"],
        )
        try:
            context = browser.new_context()
            context.set_default_timeout(120_000)
            yield context
        finally:
            browser.close()


@contextlib.contextmanager
def browser_page(executable: str, width: int = 1500, height: int = 1000) -> Iterator[object]:
    """A page of a fresh headless Chromium."""
    with browser_context(executable) as context:
        page = context.new_page()  # type: ignore[attr-defined]
        page.set_viewport_size({"width": width, "height": height})
        yield page


def open_notebook(page: object, server: Server, name: str) -> None:
    """Open a notebook and wait for its kernel: "run all" sent before that would be dropped without a word.

    A page that shows another notebook closes that one and ends its kernel.
    """
    if page.evaluate("() => window.jupyterapp === undefined"):  # type: ignore[attr-defined]
        page.goto(f"{server.url}/doc/tree/{name}?token={server.token}&reset")  # type: ignore[attr-defined]
        page.wait_for_function("() => window.jupyterapp !== undefined")  # type: ignore[attr-defined]
    else:
        page.evaluate(SWITCH, name)  # type: ignore[attr-defined]
    page.evaluate(READY)  # type: ignore[attr-defined]


def run_all(page: object) -> None:
    """Run every cell; returns when the last has run."""
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")  # type: ignore[attr-defined]


CELL_ERRORS = """() => {
  const model = window.jupyterapp.shell.currentWidget.content.model;
  const found = [];
  for (const cell of model.cells) {
    if (cell.type !== 'code' || (cell.getMetadata('tags') ?? []).includes('raises-exception')) continue;
    for (let i = 0; i < cell.outputs.length; i++) {
      const output = cell.outputs.get(i);
      if (output.type === 'error') found.push(output.toJSON());
    }
  }
  return found;
}"""

ALL_DRAWN = """() => document.querySelectorAll('.gs-plot').length > 0
  && ![...document.querySelectorAll('.gs-plot')].some((plot) => plot.clientWidth > 0 && plot.dataset.busy !== '0')"""
