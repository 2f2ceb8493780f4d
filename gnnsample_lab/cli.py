"""The command ``gnnsample-lab``: ``lab``, ``doctor``, ``datasets`` and ``bench``."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gnnsample_lab import __version__
from gnnsample_lab.resources import checkout_root, resource_path

_COPY_NAME = "gnnsample-lab-notebooks"


def notebook_folder(chosen: Path | None = None) -> Path:
    """The folder that JupyterLab opens.

    A checkout's own ``notebooks/``; for an installed package a copy, since nobody should work inside
    site-packages: ``chosen``, else ``gnnsample-lab-notebooks`` in the home folder. Files that are already
    there are the reader's work and stay as they are.

    Raises:
        PermissionError: the copy cannot be written.
    """
    shipped = resource_path("notebooks")
    if chosen is None and checkout_root() is not None:
        return shipped
    target = (chosen or Path.home() / _COPY_NAME).expanduser().resolve()
    for source in sorted(shipped.rglob("*")):
        copy = target / source.relative_to(shipped)
        if source.is_file() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            partial = copy.with_name(f".{copy.name}.part")
            shutil.copyfile(source, partial)
            partial.replace(copy)
    return target


def jupyter_arguments(
    folder: Path, token: str, *, port: int | None, browser: bool, extra: Sequence[str] = ()
) -> list[str]:
    """JupyterLab's arguments: loopback only, always a token, root allowed when we are root.

    They are handed over inside this process, so the token does not appear in the list of processes. Given here,
    address and token win over a user's configuration that would open the server to the network.
    """
    arguments = [
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.ip=127.0.0.1",
        f"--IdentityProvider.token={token}",
    ]
    first = next((path.name for path in sorted(folder.glob("00*.ipynb"))), None)
    if first:
        arguments.append(f"--LabApp.default_url=/lab/tree/{first}")
    if port is not None:
        arguments.append(f"--ServerApp.port={port}")
    if not browser:
        arguments.append("--ServerApp.open_browser=False")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--ServerApp.allow_root=True")
    return [*arguments, *extra]


def _lab(options: argparse.Namespace) -> int:
    try:
        from jupyterlab.labapp import LabApp
    except ImportError:
        print("JupyterLab is not installed: pip install jupyterlab", file=sys.stderr)
        return 1
    try:
        folder = notebook_folder(options.dir)
    except OSError as error:
        print(
            f"gnnsample-lab: no notebooks to open ({error}); choose another folder with --dir",
            file=sys.stderr,
        )
        return 1
    # Without a display the attempt to open a browser only prints a confusing warning.
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    headless = sys.platform.startswith("linux") and not any(map(os.environ.get, displays))
    own_token = os.environ.get("JUPYTER_TOKEN")
    arguments = jupyter_arguments(
        folder,
        own_token or secrets.token_hex(24),
        port=options.port,
        browser=not (options.no_browser or headless),
        extra=[argument for argument in options.jupyter if argument != "--"],
    )
    server = LabApp.initialize_server(argv=arguments)
    # Jupyter shows the address with its token only for a token that was made for this run, as this one was.
    server.identity_provider.token_generated = not own_token
    server.start()
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    from gnnsample_lab import doctor

    return doctor.main(arguments)


def _bench(arguments: Sequence[str]) -> int:
    from gnnsample_lab import bench

    return bench.main(list(arguments)) or 0


def _datasets(options: argparse.Namespace) -> int:
    from gnnsample_lab import datasets

    table = datasets()
    if options.json:
        print(table.to_json(orient="records", indent=1))
    else:
        print(table.drop(columns="notes", errors="ignore").to_string(index=False, na_rep=""))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gnnsample-lab", description="GPU graph sampling for GNN training, with sliders and traces."
    )
    parser.add_argument("--version", action="version", version=f"gnnsample-lab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    lab = commands.add_parser("lab", help="JupyterLab on the notebooks (loopback only, with a token)")
    lab.add_argument("--dir", type=Path, help="folder to work in; notebooks missing there are copied into it")
    lab.add_argument("--port", type=int, help="port (default: JupyterLab's choice)")
    lab.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    lab.add_argument(
        "jupyter", nargs=argparse.REMAINDER, metavar="-- ...", help="anything else goes to JupyterLab"
    )

    data = commands.add_parser("datasets", help="graphs that can be loaded, with sizes and licences")
    data.add_argument("--json", action="store_true", help="as JSON records")

    # These two have parsers of their own, loaded when they are asked for.
    commands.add_parser("doctor", help="what works on this machine and what to install", add_help=False)
    commands.add_parser("bench", help="verify, time and report a suite", add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``gnnsample-lab``; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    delegates = {"doctor": _doctor, "bench": _bench}
    if arguments and arguments[0] in delegates:
        return delegates[arguments[0]](arguments[1:])
    options = _parser().parse_args(arguments)
    return {"lab": _lab, "datasets": _datasets}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
