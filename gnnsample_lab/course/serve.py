"""Voila behind Jupyter's own door: the explorers as pages without code, on loopback, for who knows the token."""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnsample_lab.resources import resource_path

EXTENSION = "voila.server_extension"


def arguments_of(folder: Path, token: str, port: int | None, browser: bool) -> list[str]:
    """Arguments of a Jupyter server whose first page is Voila's list of the notebooks in ``folder``.

    Address and token are given here and win over a user's configuration; they are handed over inside this process,
    so the token does not appear in the list of processes.
    """
    arguments = [
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.allow_remote_access=False",
        f"--IdentityProvider.token={token}",
        "--ServerApp.default_url=/voila",
        f"--ServerApp.open_browser={browser}",
        "--VoilaConfiguration.file_allowlist=.*\\.(png|jpg|svg)",
    ]
    if port is not None:
        arguments.append(f"--ServerApp.port={port}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--ServerApp.allow_root=True")
    return arguments


def main(arguments: list[str], exposure: Callable[[Any, str], str]) -> int:
    """The command ``gnnsample-lab voila``.

    Args:
        arguments: of the command line.
        exposure: what is wrong with a configured server that must ask for a token; empty where nothing is.
    """
    parser = argparse.ArgumentParser(
        prog="gnnsample-lab voila",
        description="The explorers as pages without code (loopback, with a token).",
    )
    parser.add_argument("--notebooks", type=Path, help="folder (default: the ones that are shipped)")
    parser.add_argument("--port", type=int, help="port (default: Jupyter's choice)")
    parser.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("voila") is None:
        raise ImportError("Voila is not installed: pip install 'gnnsample-lab[voila]'")
    from jupyter_server.serverapp import ServerApp

    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(24)
    folder = (options.notebooks or resource_path("notebooks")).resolve()
    server = ServerApp(jpserver_extensions={EXTENSION: True})
    server.initialize(
        argv=arguments_of(folder, token, options.port, not options.no_browser), new_httpserver=False
    )
    problem = exposure(server, token)
    if problem:
        raise ValueError(f"{problem}; nothing was started")
    server.init_httpserver()
    server.identity_provider.token_generated = "JUPYTER_TOKEN" not in os.environ
    server.start()
    return 0
