"""What the graph tests share: folders of their own, and an HTTP server on loopback that can misbehave."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's data and cache folders, or follows the user's variables."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "share"))
    for variable in ("LAB_DATA_ROOT", "LAB_DATASET"):
        monkeypatch.delenv(variable, raising=False)


@dataclass
class Served:
    """One file of the server, and how it is to be served."""

    body: bytes
    etag: str | None = '"1"'
    cut_after: list[int] = field(default_factory=list)
    """For each next request: close the connection after so many bytes."""
    pause_s: float = 0.0
    """Wait so long before each twentieth of the body: processes then overlap."""
    ranges: list[str | None] = field(default_factory=list)
    """The Range header of every request so far."""


class LoopbackServer:
    """Serves ``files`` by path, honours Range with If-Range, and breaks connections off when told to."""

    def __init__(self) -> None:
        self.files: dict[str, Served] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                served = outer.files.get(self.path)
                if served is None:
                    self.send_error(404)
                    return
                wanted = self.headers.get("Range")
                served.ranges.append(wanted)
                start = 0
                if wanted and self.headers.get("If-Range") == served.etag:
                    start = int(wanted.removeprefix("bytes=").rstrip("-"))
                    if start >= len(served.body):
                        self.send_response(416)
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                        return
                body = served.body[start:]
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(body)))
                if served.etag:
                    self.send_header("ETag", served.etag)
                self.end_headers()
                if served.cut_after:
                    self.wfile.write(body[: served.cut_after.pop(0)])
                    self.close_connection = True
                    return
                step = len(body) if not served.pause_s else len(body) // 20 + 1
                try:
                    for first in range(0, len(body), max(1, step)):
                        time.sleep(served.pause_s)
                        self.wfile.write(body[first : first + step])
                except ConnectionError:  # the client was killed, which is what its test is about
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def add(self, path: str, body: bytes, **how: object) -> str:
        """Serve ``body``; returns the URL."""
        self.files[path] = Served(body, **how)  # type: ignore[arg-type]
        return f"http://127.0.0.1:{self.server.server_address[1]}{path}"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    loopback = LoopbackServer()
    yield loopback
    loopback.server.shutdown()
    loopback.server.server_close()


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A folder that nobody can create anything in, not even root: its parent is a file."""
    file = tmp_path / "a-file"
    file.write_text("not a folder")
    return file / "root"


def _writers(name: str) -> ModuleType:
    """A module of ``sources/``; test modules cannot import each other in importlib mode."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "sources" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def ogb_folders() -> ModuleType:
    """The writers of ``ogb_folders.py``."""
    return _writers("ogb_folders")


@pytest.fixture(scope="session")
def planetoid_files() -> ModuleType:
    """The writers of ``planetoid_files.py``."""
    return _writers("planetoid_files")


@pytest.fixture(scope="session")
def musae_files() -> ModuleType:
    """The writers of ``musae_files.py``."""
    return _writers("musae_files")
