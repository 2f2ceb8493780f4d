"""Nsight Compute: a module of ours as a process under ``ncu``, and what ``ncu`` prints of its launches."""

from __future__ import annotations

import contextlib
import csv
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnsample_lab.graph.sources.locks import exclusive

NO_NCU = "no ncu here"
SECONDS = 180.0
"""What a process under ``ncu`` may take."""
_HEAD = '"Metric Name"'


def find_ncu() -> str | None:
    """Path of ``ncu``, or None."""
    for name in ("ncu", "/usr/local/cuda/bin/ncu"):
        if found := shutil.which(name):
            return found
    return None


def command(
    ncu: str, module: str, arguments: Iterable[Any], metrics: Iterable[str], kernels: Sequence[str] = ()
) -> list[str]:
    """The line that profiles what a module launches between ``profilerStart`` and ``profilerStop``, as a CSV.

    Args:
        ncu: its path.
        module: that ``python -m`` runs.
        arguments: of the module.
        metrics: ncu's names.
        kernels: profile these alone, since each takes several passes; none: all.
    """
    # Base units: else a kernel of 900 us would look longer than one of 1.2 ms.
    line = [ncu, "--csv", "--print-units", "base", "--profile-from-start", "off", "--clock-control", "none"]
    if kernels:
        line += ["--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(kernels)})$"]
    return [*line, "--metrics", ",".join(metrics), sys.executable, "-m", module, *map(str, arguments)]


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """One process of a user at a time under ``ncu``: the counters serve one, and another's time would run out."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(PermissionError):  # another user's lock, which we could not open
            held.enter_context(exclusive(Path(tempfile.gettempdir()) / "gnnsample_lab.ncu"))
        yield


def run(
    module: str,
    arguments: Iterable[Any],
    metrics: Iterable[str],
    kernels: Sequence[str] = (),
    seconds: float = SECONDS,
) -> tuple[str, str]:
    """What ``ncu`` prints of a module's launches, for :func:`launches`; or nothing, and why.

    Args:
        module, arguments, metrics, kernels: as :func:`command` takes them.
        seconds: that the process may take once it is its turn.
    """
    ncu = find_ncu()
    if ncu is None:
        return "", NO_NCU
    line = command(ncu, module, arguments, metrics, kernels)
    try:
        with turn():
            done = subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", did_not_run(error)
    # The CSV, and behind it why there may be less in it than was asked for.
    printed = done.stdout + done.stderr
    return (printed, "") if _HEAD in done.stdout else ("", no_numbers(printed))


def did_not_run(error: Exception) -> str:
    """Why there are no numbers."""
    return f"ncu did not run ({type(error).__name__})"


def no_numbers(printed: str) -> str:
    """Why there are no numbers, or not all of them: the last that was printed."""
    return f"ncu gave no numbers ({last_words(printed)})"


def last_words(printed: str) -> str:
    """The end of the last line."""
    words = printed.strip().splitlines()
    return words[-1][:120] if words else "no output"


def launches(
    text: str, metrics: Mapping[str, str] | Iterable[str], kernels: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The profiled launches in their order, from ncu's CSV, which has a line per launch and metric.

    Args:
        text: with or without lines before the CSV; empty of launches where there is none.
        metrics: ncu's names -> keys of an entry; or names, which are keys themselves.
        kernels: these alone, by their names without arguments; none: all.

    Returns:
        For each ``kernel``, its name without arguments, and those of the metrics that are numbers.
    """
    keys = metrics if isinstance(metrics, Mapping) else {name: name for name in metrics}
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if _HEAD in line), len(lines))
    found: dict[int, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        try:
            number, value = int(row["ID"]), float((row.get("Metric Value") or "").replace(",", ""))
        except (KeyError, TypeError, ValueError):
            continue
        kernel = (row.get("Kernel Name") or "").partition("(")[0]
        if (key := keys.get(row.get("Metric Name") or "")) and (not kernels or kernel in kernels):
            found.setdefault(number, {"kernel": kernel})[key] = value
    return [launch for _, launch in sorted(found.items())]
