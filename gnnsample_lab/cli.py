"""The command ``gnnsample-lab``: ``lab``, ``doctor``, ``datasets``, ``partition`` and ``bench``."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnsample_lab import __version__
from gnnsample_lab.resources import checkout_root, resource_path

_COPY_NAME = "gnnsample-lab-notebooks"
_LOOPBACK = "127.0.0.1"
_OURS = {"ip", "allow_remote_access", "token", "password", "hashed_password", "identity_provider_class"}
"""Settings of the server that decide who may use it, whatever class they are set on."""
INTERRUPTED, BROKEN_PIPE = 130, 141
"""Exit codes as a shell gives them: 128 plus the number of SIGINT, of SIGPIPE."""


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
    folder: Path,
    token: str,
    *,
    port: int | None,
    browser: bool,
    remote: str | None = None,
    extra: Sequence[str] = (),
) -> list[str]:
    """JupyterLab's arguments: loopback unless ``remote`` is given, always a token, root allowed when we are root.

    They are handed over inside this process, so the token does not appear in the list of processes. Given here,
    address and token win over a user's configuration that would open the server to the network.

    Args:
        folder: what JupyterLab shows.
        token: what a browser must know.
        port: None leaves the choice to JupyterLab.
        browser: open one.
        remote: the address to listen on in place of loopback.
        extra: further arguments of JupyterLab.

    Raises:
        ValueError: an argument of ``extra`` sets the address, the token or who may log in.
    """
    for argument in extra:
        name = argument.lstrip("-").partition("=")[0].rpartition(".")[2].replace("-", "_")
        if argument.startswith("-") and name in _OURS:
            raise ValueError(
                f"{argument.partition('=')[0]} may not be set here: the server listens on loopback and asks for a "
                "token; --allow-remote [ADDRESS] before -- opens it to the network, JUPYTER_TOKEN sets the token"
            )
    arguments = [
        f"--ServerApp.root_dir={folder}",
        f"--ServerApp.ip={remote or _LOOPBACK}",
        f"--ServerApp.allow_remote_access={remote is not None}",
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


def exposure(server: Any, token: str, remote: str | None = None) -> str:
    """What is wrong with a configured server that has not begun to listen; empty when it is as it was asked to be.

    Configuration files and spellings that :func:`jupyter_arguments` does not know end here.

    Args:
        server: a ``ServerApp`` after ``initialize``.
        token: the token that it must ask for.
        remote: the address that it may listen on in place of loopback.
    """
    identity = server.identity_provider
    if getattr(identity, "token", None) != token or not identity.auth_enabled:
        return "the configuration of Jupyter changes the token, or does not ask for it"
    if remote is not None:
        asked = "" if remote == "*" else remote  # as Jupyter calls all interfaces
        return "" if server.ip == asked else f"the configuration of Jupyter listens on {server.ip!r}"
    if not _is_loopback(server.ip) and not server.sock:
        return f"the configuration of Jupyter listens on {server.ip!r}, not on loopback (see --allow-remote)"
    if server.allow_remote_access:
        return "the configuration of Jupyter allows remote access (see --allow-remote)"
    return ""


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _lab(options: argparse.Namespace) -> int:
    try:
        from jupyterlab.labapp import LabApp
    except ImportError:
        print("JupyterLab is not installed: pip install jupyterlab", file=sys.stderr)
        return 1
    # Without a display the attempt to open a browser only prints a confusing warning.
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    headless = sys.platform.startswith("linux") and not any(map(os.environ.get, displays))
    own_token = os.environ.get("JUPYTER_TOKEN")
    token, remote = own_token or secrets.token_hex(24), options.allow_remote
    try:
        folder = notebook_folder(options.dir)
    except OSError as error:
        raise type(error)(f"no notebooks to open ({error}); choose another folder with --dir") from error
    arguments = jupyter_arguments(
        folder,
        token,
        port=options.port,
        browser=not (options.no_browser or headless),
        remote=remote,
        extra=[argument for argument in options.jupyter if argument != "--"],
    )
    # LabApp.initialize_server in its two halves: what it is configured to do is looked at before it listens.
    server = LabApp.make_serverapp(jpserver_extensions={LabApp.get_extension_package(): True})
    server.aliases.update(LabApp.aliases)
    server.initialize(
        argv=arguments,
        starter_extension=LabApp.name,
        find_extensions=LabApp.load_other_extensions,
        new_httpserver=False,
    )
    if server.subapp is None:
        problem = exposure(server, token, remote)
        if problem:
            raise ValueError(f"{problem}; nothing was started")
        server.init_httpserver()
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


def _pictures(arguments: Sequence[str]) -> int:
    from gnnsample_lab.course import pictures

    return pictures.main(list(arguments))


def _export_html(arguments: Sequence[str]) -> int:
    from gnnsample_lab.course import export

    return export.main(list(arguments))


def _voila(arguments: Sequence[str]) -> int:
    from gnnsample_lab.course import serve

    return serve.main(list(arguments), exposure)


def _datasets(options: argparse.Namespace) -> int:
    from gnnsample_lab import datasets

    table = datasets()
    if options.json:
        print(table.to_json(orient="records", indent=1))
    else:
        print(table.drop(columns="notes", errors="ignore").to_string(index=False, na_rep=""))
    return 0


def _partition(options: argparse.Namespace) -> int:
    import pandas as pd

    from gnnsample_lab import checks, distributed, load
    from gnnsample_lab.graph import roots

    # A graph may have to be downloaded before anybody else would look.
    for parts in options.parts:
        checks.whole("parts", parts, 1)
    checks.real("tolerance", options.tolerance, 1)
    root = roots.data_root(options.root)
    # What is computed is for those who open it later: where it was asked for, else in the cache of the user.
    if options.root is not None or roots.cache_folder(root) is None:
        roots.require_writable(root, "storing what is computed")
    # Feature rows matter to the saved parts alone.
    graph = load(options.name, options.root, scale=options.scale, features="auto" if options.save else False)
    rows = []
    for parts in options.parts:
        found = distributed.partition(
            graph, parts, options.method, seed=options.seed, tolerance=options.tolerance, root=options.root
        )
        rows.append(found.measures())
        if options.save:
            rows[-1]["folder"] = str(distributed.save_parts(graph, found, root=options.root))
    table = pd.DataFrame(rows)
    print(table.to_json(orient="records", indent=1) if options.json else table.to_string(index=False))
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be from 0 to 65535 (got {text!r})")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gnnsample-lab", description="GPU graph sampling for GNN training, with sliders and traces."
    )
    parser.add_argument("--version", action="version", version=f"gnnsample-lab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    lab = commands.add_parser("lab", help="JupyterLab on the notebooks (loopback only, with a token)")
    lab.add_argument("--dir", type=Path, help="folder to work in; notebooks missing there are copied into it")
    lab.add_argument("--port", type=_port, help="port (default: JupyterLab's choice)")
    lab.add_argument(
        "--allow-remote",
        nargs="?",
        const="0.0.0.0",
        metavar="ADDRESS",
        help="listen on ADDRESS (default: every interface) in place of loopback; the token is asked for all the same",
    )
    lab.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    lab.add_argument(
        "jupyter", nargs=argparse.REMAINDER, metavar="-- ...", help="anything else goes to JupyterLab"
    )

    data = commands.add_parser("datasets", help="graphs that can be loaded, with sizes and licences")
    data.add_argument("--json", action="store_true", help="as JSON records")

    cut = commands.add_parser(
        "partition", help="divide a graph among ranks beforehand: stored, with its quality and seconds"
    )
    cut.add_argument("name", help="a graph as in datasets")
    cut.add_argument("--parts", type=int, nargs="+", required=True, metavar="K", help="numbers of parts")
    cut.add_argument("--method", default="metis", choices=["metis", "streaming", "random", "range"])
    cut.add_argument("--seed", type=int, default=0, help="of the method (default: 0)")
    cut.add_argument(
        "--tolerance", type=float, default=1.1, help="most that a part may have, in means (default: 1.1)"
    )
    cut.add_argument("--scale", type=float, default=1.0, help="of a synthetic graph (default: 1)")
    cut.add_argument("--root", type=Path, help="data root (default: LAB_DATA_ROOT, else as in lab.load)")
    cut.add_argument("--save", action="store_true", help="write the parts' files, too, for ranks to open")
    cut.add_argument("--json", action="store_true", help="as JSON records")

    # These have parsers of their own, loaded when they are asked for.
    commands.add_parser("pictures", help="draw the notebooks' recorded pictures anew", add_help=False)
    commands.add_parser("export-html", help="the notebooks as a static course in HTML", add_help=False)
    commands.add_parser("voila", help="the explorers as pages (loopback only, with a token)", add_help=False)
    commands.add_parser("doctor", help="what works on this machine and what to install", add_help=False)
    commands.add_parser("bench", help="verify, time and report a suite", add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``gnnsample-lab``; returns the exit code.

    Whatever ends a command early is said in one line: an error (1), Ctrl-C (130). A reader of the output that has
    gone, as in ``| head``, ends it in silence (141).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _run(arguments)
        finally:
            # Here, where it can still be caught: what argparse printed before it raised SystemExit, too.
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes once more as it ends, which must not fail again.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (ImportError, LookupError, MemoryError, OSError, RuntimeError, ValueError) as error:
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        _say(" ".join(text.split()) or type(error).__name__)
        return 1


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"gnnsample-lab: {text}", file=sys.stderr)


def _run(arguments: list[str]) -> int:
    delegates = {
        "doctor": _doctor,
        "bench": _bench,
        "pictures": _pictures,
        "export-html": _export_html,
        "voila": _voila,
    }
    if arguments and arguments[0] in delegates:
        return delegates[arguments[0]](arguments[1:])
    options = _parser().parse_args(arguments)
    return {"lab": _lab, "datasets": _datasets, "partition": _partition}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
